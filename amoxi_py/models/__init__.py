"""Language models behind the `ChatModel` port: offline, scripted, providers' over HTTP, and pydantic-ai's.

`from amoxi_py.models import AnthropicModel, OpenAIModel` makes one with a key of its own; an SDK is imported with the
name that needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amoxi_py.models.anthropic import AnthropicModel
    from amoxi_py.models.openai import OpenAIModel
    from amoxi_py.ports.chat_model import ChatModel

__all__ = ["AnthropicModel", "ChatModel", "OpenAIModel"]

_MODULES = {
    "AnthropicModel": "amoxi_py.models.anthropic",
    "ChatModel": "amoxi_py.ports.chat_model",
    "OpenAIModel": "amoxi_py.models.openai",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
