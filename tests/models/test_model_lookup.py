"""Which model a name, an object or the keys at hand stand for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from amoxi_py.errors import ConfigError
from amoxi_py.models.lookup import resolve_model
from amoxi_py.testing import ScriptedModel


def test_without_a_key_the_offline_model_answers() -> None:
    assert resolve_model(None, {}).name == "offline"
    assert resolve_model("offline", {"OPENAI_API_KEY": "k"}).name == "offline"


def test_a_key_chooses_its_provider() -> None:
    assert resolve_model(None, {"OPENAI_API_KEY": "k\n"}).name.startswith("openai:gpt-")
    assert resolve_model("openai:my-model", {"OPENAI_API_KEY": "k"}).name == "openai:my-model"


def test_a_key_without_an_adapter_leaves_the_offline_model_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert resolve_model(None, {"ANTHROPIC_API_KEY": "k"}).name == "offline"
    assert "ANTHROPIC_API_KEY is set, but this version has no adapter for it: the offline model answers" in caplog.text


def test_a_server_of_ones_own_needs_no_key() -> None:
    assert resolve_model("openai:llama3:8b", {"OPENAI_BASE_URL": "http://localhost:1/v1"}).name == "openai:llama3:8b"


def test_a_model_object_is_taken_as_it_is() -> None:
    model = ScriptedModel(["Hi."])
    assert resolve_model(model, {}) is model


@pytest.mark.parametrize(
    ("spec", "environ", "said"),
    [
        ("openai:gpt-5-mini", {}, "OPENAI_API_KEY"),
        ("openai:", {"OPENAI_API_KEY": "k"}, "unknown"),
        ("gpt-5", {"OPENAI_API_KEY": "k"}, "openai:<model>"),
        ("anthropic:claude", {"ANTHROPIC_API_KEY": "k"}, "not in this version"),
        (["offline", "offline"], {}, "fallbacks"),
        (lambda ctx: "offline", {}, "function"),
        (42, {}, "42 is no model"),
        (ScriptedModel, {}, "is a class"),
        ("openai:m", {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "localhost:1"}, "http://"),
        ("openai:m", {"OPENAI_API_KEY": "a\nb"}, "no key has"),
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


def test_a_missing_sdk_is_told_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    monkeypatch.delitem(sys.modules, "amoxi_py.models.openai", raising=False)
    monkeypatch.delattr("amoxi_py.models.openai", raising=False)
    with pytest.raises(ConfigError) as caught:
        resolve_model("openai:m", {"OPENAI_API_KEY": "k"})
    assert "pip install 'amoxi-py[openai]'" in str(caught.value)
