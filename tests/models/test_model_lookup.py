"""Which model a name, an object, a list or the keys at hand stand for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pydantic_ai.models.test import TestModel

from amoxi_py import models
from amoxi_py.app.models import model_of_setting
from amoxi_py.config.load import load_settings
from amoxi_py.errors import ConfigError
from amoxi_py.models.lookup import DEFAULT_ANTHROPIC_MODEL, DEFAULT_OPENAI_MODEL, resolve_model
from amoxi_py.testing import ScriptedModel

KEYS = {"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}


def test_without_a_key_the_offline_model_answers() -> None:
    assert resolve_model(None, {}).name == "offline"
    assert resolve_model("offline", KEYS).name == "offline"


def test_a_key_chooses_its_provider_and_anthropics_comes_first() -> None:
    assert resolve_model(None, {"OPENAI_API_KEY": "k\n"}).name == f"openai:{DEFAULT_OPENAI_MODEL}"
    assert resolve_model(None, {"ANTHROPIC_API_KEY": "k\n"}).name == f"anthropic:{DEFAULT_ANTHROPIC_MODEL}"
    assert resolve_model(None, KEYS).name == f"anthropic:{DEFAULT_ANTHROPIC_MODEL}"
    assert resolve_model("openai:my-model", KEYS).name == "openai:my-model"
    assert resolve_model("anthropic:my-model", KEYS).name == "anthropic:my-model"


def test_the_default_models_are_ones_that_the_sdks_know() -> None:
    from typing import get_args

    from anthropic._data import DEPRECATED_MODELS
    from anthropic.types.model import Model
    from openai.types import ChatModel

    known, _ = get_args(Model)
    assert DEFAULT_ANTHROPIC_MODEL in get_args(known)
    assert DEFAULT_ANTHROPIC_MODEL not in DEPRECATED_MODELS
    assert DEFAULT_OPENAI_MODEL in get_args(ChatModel)


def test_a_server_of_ones_own_needs_no_key() -> None:
    assert resolve_model("openai:llama3:8b", {"OPENAI_BASE_URL": "http://localhost:1/v1"}).name == "openai:llama3:8b"
    assert resolve_model("anthropic:m", {"ANTHROPIC_BASE_URL": "http://localhost:1"}).name == "anthropic:m"


def test_a_model_object_is_taken_as_it_is_and_one_of_pydantic_ai_is_wrapped() -> None:
    model = ScriptedModel(["Hi."])
    assert resolve_model(model, {}) is model
    assert resolve_model(TestModel(), {}).name == "test:test"


def test_a_list_is_a_chain_and_a_list_of_one_is_that_one() -> None:
    assert resolve_model(["anthropic:a", "openai:b", ScriptedModel(["Hi."])], KEYS).name == (
        "anthropic:a, openai:b, scripted"
    )
    assert resolve_model(["offline"], {}).name == "offline"


def test_every_other_provider_is_pydantic_ais_with_the_keys_that_the_settings_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    assert resolve_model("deepseek:deepseek-chat", {"DEEPSEEK_API_KEY": "k"}).name == "deepseek:deepseek-chat"
    with pytest.raises(ConfigError, match="DEEPSEEK_API_KEY"):
        resolve_model("deepseek:deepseek-chat", {})


@pytest.mark.parametrize(
    ("spec", "environ", "said"),
    [
        ("openai:gpt-5-mini", {}, "OPENAI_API_KEY"),
        ("anthropic:claude", {"OPENAI_API_KEY": "k"}, "ANTHROPIC_API_KEY"),
        ("openai:", KEYS, "unknown"),
        ("anthropic:", KEYS, "unknown"),
        ("gpt-5", KEYS, "'openai:<model>'"),
        ("opnai:gpt-5", KEYS, "Unknown model"),
        ([], {}, "at least one"),
        (["offline", ["offline"]], {}, "not lists"),
        (["offline", "offline"], {}, "names one twice"),
        (["offline", "openai:m"], {}, "OPENAI_API_KEY"),
        (["offline", lambda ctx: "offline"], {}, "by itself"),
        (42, {}, "42 is no model"),
        (ScriptedModel, {}, "is a class"),
        ("openai:m", {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "localhost:1"}, "http://"),
        ("anthropic:m", {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "localhost:1"}, "http://"),
        ("openai:m", {"OPENAI_API_KEY": "a\nb"}, "no key has"),
        ("anthropic:m", {"ANTHROPIC_API_KEY": "a\nb"}, "no key has"),
    ],
)
def test_what_cannot_be_a_model_is_refused_with_the_way_out(spec: object, environ: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_model(spec, environ)
    assert said in str(caught.value)


def test_no_refusal_shows_a_key() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_model("openai:m", {"OPENAI_API_KEY": "sk-secret\nmore"})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("package", "spec", "module", "extra"),
    [
        ("aiohttp", "openai:m", "openai", "openai"),
        ("aiohttp", "anthropic:m", "anthropic", "anthropic"),
        ("pydantic_ai", "groq:m", "pydantic_ai", "pydantic-ai"),
    ],
)
def test_a_missing_package_is_told_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, package: str, spec: str, module: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.exceptions", None)
    for name in (module, "openai_api", "http_model"):
        monkeypatch.delitem(sys.modules, f"amoxi_py.models.{name}", raising=False)
    monkeypatch.delattr(models, module, raising=False)
    with pytest.raises(ConfigError) as caught:
        resolve_model(spec, KEYS)
    assert f"pip install 'amoxi-py[{extra}]'" in str(caught.value)


def test_who_has_a_key_but_not_its_package_is_told_of_another_way(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    for name in ("anthropic", "http_model"):
        monkeypatch.delitem(sys.modules, f"amoxi_py.models.{name}", raising=False)
    monkeypatch.delattr(models, "anthropic", raising=False)
    with pytest.raises(ConfigError) as caught:
        model_of_setting(load_settings(tmp_path, environ=KEYS))
    assert "pip install 'amoxi-py[anthropic]'; or name another one, such as AI_MODEL=offline" in str(caught.value)
    assert model_of_setting(load_settings(tmp_path, environ={**KEYS, "AI_MODEL": "offline"})).name == "offline"


def test_the_models_to_make_oneself_are_public() -> None:
    assert models.__all__ == ["AnthropicModel", "ChatModel", "OpenAIModel"]
    assert models.AnthropicModel("m", "k").name == "anthropic:m"
    assert models.OpenAIModel("m", "k").name == "openai:m"
    assert set(models.__all__) <= set(dir(models))
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = models.nonsense
