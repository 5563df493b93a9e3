"""From what a declaration or a setting says of a model to the model; an SDK is imported when one is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from amoxi_py.errors import ConfigError
from amoxi_py.models.fallback import FallbackModel
from amoxi_py.models.offline import OfflineModel
from amoxi_py.ports.chat_model import ChatModel

DEFAULT_ANTHROPIC_MODEL = "claude-sonnet-5-5"
DEFAULT_OPENAI_MODEL = "gpt-5-mini"
FORMS = "'offline', 'anthropic:<model>', 'openai:<model>', '<provider>:<model>' with pydantic-ai"
_ACTS_FOR = {"organization": "OPENAI_ORG_ID", "project": "OPENAI_PROJECT_ID"}

Made = dict[object, ChatModel]


def resolve_model(spec: object, environ: Mapping[str, str], made: Made | None = None) -> ChatModel:
    """Return the model that `spec` names.

    Args:
        spec: A name such as `"anthropic:<model>"`, a ChatModel, a model of pydantic-ai, a list of these (each is asked
            when the one before it cannot answer), or None for what the keys in `environ` allow.
        environ: Where keys and addresses are, such as `ANTHROPIC_API_KEY` and `OPENAI_BASE_URL`.
        made: What was made here before, and is to be closed: a name that stands there already is not made twice.

    Raises:
        ConfigError: there is no such model, or its key or SDK is missing; says the way out.
    """
    made = {} if made is None else made
    if isinstance(spec, (list, tuple)):
        return _chain(spec, environ, made)
    if spec is None or spec == "":
        spec = default_model(environ)
    if isinstance(spec, str):
        if spec not in made:
            made[spec] = _by_name(spec, environ)
        return made[spec]
    if isinstance(spec, type):
        raise ConfigError(f"{spec.__qualname__!r} is a class; give an object of it")
    if is_chat_model(spec):
        return cast(ChatModel, spec)
    if _is_of_pydantic_ai(spec):
        wrapped = cast(ChatModel, _pydantic_ai(type(spec).__qualname__).PydanticAIModel(spec))
        return made.setdefault(("pydantic-ai", id(spec)), wrapped)
    if callable(spec):
        raise ConfigError("a function that chooses the model can only stand in an agent's `model`, by itself")
    raise ConfigError(f"{spec!r} is no model; use {FORMS}, or an object with a name and stream()")


def default_model(environ: Mapping[str, str]) -> str:
    """Return the name of the model for the keys that are present: Anthropic's, OpenAI's, else the offline model."""
    if environ.get("ANTHROPIC_API_KEY", "").strip():
        return f"anthropic:{DEFAULT_ANTHROPIC_MODEL}"
    if environ.get("OPENAI_API_KEY", "").strip():
        return f"openai:{DEFAULT_OPENAI_MODEL}"
    return "offline"


def is_chat_model(thing: object) -> bool:
    """Whether an object is a `ChatModel`, as far as can be seen."""
    return isinstance(getattr(thing, "name", None), str) and callable(getattr(thing, "stream", None))


def _chain(specs: list[object] | tuple[object, ...], environ: Mapping[str, str], made: Made) -> ChatModel:
    if not specs:
        raise ConfigError("a list of models needs at least one")
    if any(isinstance(spec, (list, tuple)) for spec in specs):
        raise ConfigError("a list of models holds names and models, not lists")
    if len({spec for spec in specs if isinstance(spec, str)}) < sum(isinstance(spec, str) for spec in specs):
        raise ConfigError(f"the list of models {list(specs)!r} names one twice")
    models = [resolve_model(spec, environ, made) for spec in specs]
    return models[0] if len(models) == 1 else FallbackModel(models)


def _by_name(spec: str, environ: Mapping[str, str]) -> ChatModel:
    provider, _, model = spec.partition(":")
    if spec == "offline":
        return OfflineModel()
    if not provider or not model:
        raise ConfigError(
            f"the model {spec!r} is unknown; use {FORMS}, such as 'anthropic:{DEFAULT_ANTHROPIC_MODEL}' or "
            f"'openai:{DEFAULT_OPENAI_MODEL}'"
        )
    if provider == "openai":
        return _openai(model, environ)
    if provider == "anthropic":
        return _anthropic(model, environ)
    return cast(ChatModel, _pydantic_ai(spec).model_by_name(spec, environ))


def _openai(model: str, environ: Mapping[str, str]) -> ChatModel:
    key, base_url = key_and_address("OPENAI", f"the model {f'openai:{model}'!r}", environ)

    def load() -> Any:
        from amoxi_py.models import openai as adapter

        return adapter

    adapter = load_adapter(load, f"the model {f'openai:{model}'!r}", "openai", ("aiohttp",))
    return cast(ChatModel, adapter.OpenAIModel(model, key, base_url, **acts_for(environ)))


def _anthropic(model: str, environ: Mapping[str, str]) -> ChatModel:
    key, base_url = key_and_address("ANTHROPIC", f"the model {f'anthropic:{model}'!r}", environ)

    def load() -> Any:
        from amoxi_py.models import anthropic as adapter

        return adapter

    adapter = load_adapter(load, f"the model {f'anthropic:{model}'!r}", "anthropic", ("aiohttp",))
    return cast(ChatModel, adapter.AnthropicModel(model, key, base_url))


def _pydantic_ai(spec: str) -> Any:
    def load() -> Any:
        from amoxi_py.models import pydantic_ai as adapter

        return adapter

    return load_adapter(
        load, f"the model {spec!r}", "pydantic-ai", ("pydantic_ai", "pydantic_graph", "genai_prices", "opentelemetry")
    )


def _is_of_pydantic_ai(thing: object) -> bool:
    """Whether an object is a model of pydantic-ai, which need not be imported to know."""
    return any(cls.__name__ == "Model" and cls.__module__.split(".")[0] == "pydantic_ai" for cls in type(thing).__mro__)


def acts_for(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what a key of OpenAI acts for, where it could act for several."""
    return {name: environ.get(variable, "").strip() for name, variable in _ACTS_FOR.items()}


def key_and_address(provider: str, what: str, environ: Mapping[str, str]) -> tuple[str, str | None]:
    """Return a provider's key and another address than its own; raise `ConfigError` when `what` has neither."""
    key = environ.get(f"{provider}_API_KEY", "").strip()
    base_url = environ.get(f"{provider}_BASE_URL", "").strip() or None
    if not key:
        if base_url is None:
            raise ConfigError(f"{what} needs {provider}_API_KEY, which is not set")
        key = "none"  # servers on one's own machine ask for no key
    return key, base_url


def load_adapter(load: Callable[[], Any], what: str, extra: str, packages: tuple[str, ...]) -> Any:
    """Return the module of an adapter; raise `ConfigError` when a package is missing that comes with an extra."""
    try:
        return load()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in packages:
            raise
        raise ConfigError(
            f"{what} needs {error.name!r}, which is not installed: pip install 'amoxi-py[{extra}]'"
        ) from error
