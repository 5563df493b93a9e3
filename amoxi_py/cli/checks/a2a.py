"""The A2A door: who may come in, which skills are there for them, and whether partners can reach its address."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from amoxi_py.app.a2a import default_agent_problem
from amoxi_py.cli.a2a_snippets import a2a_url_of
from amoxi_py.cli.checks.finding import Finding
from amoxi_py.config.settings import Settings
from amoxi_py.declare.scan import Declarations
from amoxi_py.domain.addresses import LOCAL_NAMES, is_safe


def look_at_a2a(settings: Settings, declarations: Declarations | None) -> Iterator[Finding]:
    """Look at what other agents will find; nothing where it is not enabled."""
    if not settings.ai.a2a.enabled:
        return
    if declarations is not None:
        problem = default_agent_problem(settings, declarations.catalog)
        if problem is not None:
            yield Finding(check="a2a", level="error", text=problem, fix="correct it; nothing starts before")
        yield _offered(settings, declarations)
    if not settings.dev:
        yield from _address(settings)


def _offered(settings: Settings, declarations: Declarations) -> Finding:
    agents = [agent for agent in declarations.catalog.agents.values() if agent.expose]
    if not agents:
        text = f"{a2a_url_of(settings)} has no skills: no agent is exposed"
        fix = "leave `expose` as it is on an agent, or set 'ai.a2a.enabled' to false"
        return Finding(check="a2a", level="warning", text=text, fix=fix)
    skills = ", ".join(sorted(agent.name + ("" if agent.allow is None else " (not to all)") for agent in agents))
    who = ", ".join(f"a2a:{name}" for name in settings.callers_of("a2a")) or "nobody yet"
    return Finding(check="a2a", level="ok", text=f"{a2a_url_of(settings)} has the skills {skills}, for {who}")


def _address(settings: Settings) -> Iterator[Finding]:
    url = settings.server.public_url
    fix = "set it to the https address that partners use, such as https://shop.example.com"
    if url is None:
        alone = settings.server.host in LOCAL_NAMES
        text = "'server.public-url' is not set: the agent card names the address by which it was asked for"
        yield Finding(check="a2a", level="note" if alone else "warning", text=text, fix=fix)
    elif not is_safe(urlsplit(url)):
        text = f"'server.public-url' is {url!r}: partners' tokens would go over the network as they are"
        yield Finding(check="a2a", level="warning", text=text, fix=fix)
