"""From what a declaration or a setting says of a model to the model; an SDK is imported when one is asked for."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, cast

from amoxi_py.errors import ConfigError
from amoxi_py.models.offline import OfflineModel
from amoxi_py.ports.chat_model import ChatModel

DEFAULT_OPENAI_MODEL = "gpt-5-mini"

_log = logging.getLogger("amoxi_py")


def resolve_model(spec: object, environ: Mapping[str, str]) -> ChatModel:
    """Return the model that `spec` names.

    Args:
        spec: `"offline"`, `"openai:<model>"`, a ChatModel, or None for what the keys in `environ` allow.
        environ: Where keys and addresses are: `OPENAI_API_KEY`, `OPENAI_BASE_URL`.

    Raises:
        ConfigError: there is no such model, or its key or SDK is missing; says the way out.
    """
    if spec is None or spec == "":
        spec = default_model(environ)
    if isinstance(spec, str):
        return _by_name(spec, environ)
    if isinstance(spec, (list, tuple)):
        raise ConfigError("a list of models (a chain of fallbacks) is not in this version; name one model")
    if isinstance(spec, type):
        raise ConfigError(f"{spec.__qualname__!r} is a class; give an object of it")
    if isinstance(getattr(spec, "name", None), str) and callable(getattr(spec, "stream", None)):
        return cast(ChatModel, spec)
    if callable(spec):
        raise ConfigError("a function that chooses the model is not in this version; name one model")
    raise ConfigError(f"{spec!r} is no model; use 'offline', 'openai:<model>' or an object with a name and stream()")


def default_model(environ: Mapping[str, str]) -> str:
    """Return the name of the model for the keys that are present: OpenAI's, else the offline model."""
    if environ.get("OPENAI_API_KEY", "").strip():
        return f"openai:{DEFAULT_OPENAI_MODEL}"
    if environ.get("ANTHROPIC_API_KEY", "").strip():
        _log.warning("ANTHROPIC_API_KEY is set, but this version has no adapter for it: the offline model answers")
    return "offline"


def _by_name(spec: str, environ: Mapping[str, str]) -> ChatModel:
    provider, _, model = spec.partition(":")
    if spec == "offline":
        return OfflineModel()
    if provider == "openai" and model:
        return _openai(model, environ)
    if provider == "anthropic":
        raise ConfigError(f"the model {spec!r} needs the Anthropic adapter, which is not in this version")
    raise ConfigError(f"the model {spec!r} is unknown; use 'offline' or 'openai:<model>', such as 'openai:gpt-5-mini'")


def _openai(model: str, environ: Mapping[str, str]) -> ChatModel:
    key = environ.get("OPENAI_API_KEY", "").strip()
    base_url = environ.get("OPENAI_BASE_URL", "").strip() or None
    if not key:
        if base_url is None:
            raise ConfigError(f"the model 'openai:{model}' needs OPENAI_API_KEY, which is not set")
        key = "none"  # servers on one's own machine ask for no key, but the SDK does
    adapter: Any
    try:
        from amoxi_py.models import openai as adapter
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("openai", "aiohttp", "httpx2"):
            raise
        raise ConfigError(
            f"the model 'openai:{model}' needs {error.name!r}, which is not installed: pip install 'amoxi-py[openai]'"
        ) from error
    found: ChatModel = adapter.OpenAIModel(model, key, base_url)
    return found
