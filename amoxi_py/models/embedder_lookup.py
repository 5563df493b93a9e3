"""From what the setting says of an embedder to the embedder; an adapter is imported when one is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from amoxi_py.errors import ConfigError
from amoxi_py.models.lookup import acts_for, key_and_address, load_adapter
from amoxi_py.models.offline_embedder import OfflineEmbedder
from amoxi_py.ports.embedder import Embedder

FORMS = "'offline', 'openai:<model>', 'openai:<model>@<dimensions>'"
_MOST_DIMENSIONS = 4000  # what PostgreSQL can have an index of


def resolve_embedder(spec: str, environ: Mapping[str, str]) -> Embedder:
    """Return the embedder that `spec` names.

    Args:
        spec: Such as `"offline"`, `"openai:text-embedding-3-small"`, or `"openai:nomic-embed-text@768"` for a model
            whose number of dimensions is not known here.
        environ: Where the key and the address are: `OPENAI_API_KEY`, `OPENAI_BASE_URL`.

    Raises:
        ConfigError: there is no such embedder, or its key or package is missing; says the way out.
    """
    if spec == "offline":
        return OfflineEmbedder()
    provider, _, rest = spec.partition(":")
    model, given, number = rest.rpartition("@")
    model = model if given else number
    if provider != "openai" or not model:
        raise ConfigError(f"the embedder {spec!r} is unknown; use {FORMS}")
    key, base_url = key_and_address("OPENAI", f"the embedder {spec!r}", environ)

    def load() -> Any:
        from amoxi_py.models import openai_embedder as adapter

        return adapter

    adapter = load_adapter(load, f"the embedder {spec!r}", "openai", ("aiohttp",))
    dimensions = _dimensions(spec, number) if given else adapter.DIMENSIONS.get(model)
    if dimensions is None:
        raise ConfigError(
            f"it is not known here how many dimensions the vectors of the embedder {spec!r} have: say so, such as "
            f"{spec + '@768'!r}"
        )
    return cast(Embedder, adapter.OpenAIEmbedder(model, dimensions, key, base_url, **acts_for(environ)))


def _dimensions(spec: str, number: str) -> int:
    if not (number.isascii() and number.isdigit() and 1 <= int(number) <= _MOST_DIMENSIONS):
        raise ConfigError(
            f"the embedder {spec!r} has {number!r} after its '@', which must be its number of dimensions, from 1 to "
            f"{_MOST_DIMENSIONS}"
        )
    return int(number)
