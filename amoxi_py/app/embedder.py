"""The embedder that the settings name."""

from __future__ import annotations

from amoxi_py.config.settings import Settings
from amoxi_py.errors import ConfigError
from amoxi_py.models.embedder_lookup import resolve_embedder
from amoxi_py.ports.embedder import Embedder


def embedder_of(settings: Settings) -> Embedder:
    """Return the embedder of memories and documents; no provider is asked.

    Raises:
        ConfigError: it is unknown, or what it needs is missing; says where the setting came from.
    """
    try:
        return resolve_embedder(settings.ai.memory.embedder, settings.model_variables)
    except ConfigError as error:
        source = settings.sources.get("ai.memory.embedder", "the defaults")
        raise ConfigError(*(f"'ai.memory.embedder' from {source}: {problem}" for problem in error.problems)) from error
