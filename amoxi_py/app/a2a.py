"""The A2A door of an app whose settings ask for one; without it nothing of its library is loaded."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amoxi_py.app.runtime import Runtime
from amoxi_py.config.settings import Settings
from amoxi_py.declare.definitions import Catalog
from amoxi_py.errors import ConfigError

if TYPE_CHECKING:
    from amoxi_py.surfaces.a2a.door import A2aDoor

_UNKNOWN_VERSION = "0"


def a2a_door_of(runtime: Runtime, prefix: str) -> A2aDoor | None:
    """Return the door, or None when it stays shut; `prefix` comes before its paths.

    Raises:
        ConfigError: the agent that answers by default is not there for other agents.
    """
    settings, catalog = runtime.settings, runtime.declarations.catalog
    if not settings.ai.a2a.enabled:
        return None
    problem = default_agent_problem(settings, catalog)
    if problem is not None:
        raise ConfigError(problem)
    from amoxi_py.surfaces.a2a.door import A2aDoor
    from amoxi_py.surfaces.a2a.settings import A2aSettings

    key = settings.ai.a2a.card_key
    app_version, description = _told_of_app(settings)
    told = A2aSettings(
        name=settings.app_name,
        version=app_version,
        description=description,
        callers=settings.callers_of("a2a"),
        prefix=prefix,
        public_url=settings.server.public_url,
        cors_origins=settings.server.cors_origins,
        default_agent=settings.ai.a2a.default_agent,
        deduplicate=settings.ai.a2a.deduplicate,
        push_allow=settings.ai.a2a.push_allow,
        card_key=None if key is None else key.get_secret_value(),
        max_file=settings.ai.files.max_mb << 20,
        stop_grace=settings.server.stop_grace_s,
    )
    return A2aDoor(told, catalog)


def default_agent_problem(settings: Settings, catalog: Catalog) -> str | None:
    """Return what is wrong with the agent that gets messages which name no skill, or None."""
    name = settings.ai.a2a.default_agent
    if name is None:
        return None
    shown = sorted(agent.name for agent in catalog.agents.values() if agent.expose)
    if name in shown:
        return None
    source = settings.sources["ai.a2a.default-agent"]
    reason = "is not shown to others (`expose`)" if name in catalog.agents else "is not there"
    return (
        f"'ai.a2a.default-agent' from {source} is {name!r}, but this agent {reason}: set it to one of "
        f"{', '.join(shown) or 'none'}, or take it out"
    )


def _told_of_app(settings: Settings) -> tuple[str, str | None]:
    """Return the version of the app and what it is for, as its `pyproject.toml` or its installed package says."""
    project = _project(settings.folder / "pyproject.toml")
    name, version, description = (project.get(key) for key in ("name", "version", "description"))
    if version is None and isinstance(name, str):
        try:
            told = metadata(name)
        except (PackageNotFoundError, ValueError):
            pass
        else:
            version = told["Version"]
            description = description or told.json.get("summary")
    return str(version or _UNKNOWN_VERSION), str(description) if description else None


def _project(file: Path) -> dict[str, Any]:
    try:
        project = tomllib.loads(file.read_text("utf-8")).get("project")
    except (OSError, ValueError):
        return {}
    return project if isinstance(project, dict) else {}
