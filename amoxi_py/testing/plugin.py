"""The pytest plugin: fixtures for the app under test, and a guard that keeps tests from asking a model provider.

pytest loads it where amoxi_py is installed. It imports nothing before a fixture is used, and changes nothing for tests
that use none, but that a model adapter of this package sends requests to this machine only (`AMOXI_LOOPBACK_MODELS`).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from amoxi_py.models.script import Script
    from amoxi_py.models.scripted import ScriptedModel
    from amoxi_py.testing.client import Client
    from amoxi_py.testing.model_server import StrictModelServer
    from amoxi_py.testing.servers import AppServer

_GUARD = "AMOXI_LOOPBACK_MODELS"
_SET = pytest.StashKey[bool]()
_SETTINGS = ("application.json", "application-test.json")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switch that lets tests ask a provider."""
    parser.addini(
        "amoxi_real_models", "let tests send requests of models to other machines (costs money)", "bool", default=False
    )


def pytest_configure(config: pytest.Config) -> None:
    """Keep requests of models on this machine; the processes that tests start inherit it."""
    if not config.getini("amoxi_real_models") and _GUARD not in os.environ:
        os.environ[_GUARD] = "1"
        config.stash[_SET] = True


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave the environment as it was."""
    if config.stash.get(_SET, False):
        os.environ.pop(_GUARD, None)


@pytest.fixture
def amoxi_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """An empty folder with the app's settings files, which is the current one while the test runs.

    The app is looked for in the current folder, then where pytest's own settings are.
    """
    places = (Path.cwd(), request.config.rootpath)
    home = next((place for place in places if (place / _SETTINGS[0]).exists()), places[0])
    folder = tmp_path / "app-under-test"
    folder.mkdir()
    for name in _SETTINGS:
        if (home / name).exists():
            shutil.copy(home / name, folder)
    if str(home) not in sys.path:
        monkeypatch.syspath_prepend(str(home))
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def scripted_model() -> Iterator[Callable[[Script], ScriptedModel]]:
    """Make a model that plays a script: `scripted_model([...])`.

    The test fails when the model had to refuse anything.
    """
    from amoxi_py.models.scripted import ScriptedModel

    made: list[ScriptedModel] = []

    def make(script: Script) -> ScriptedModel:
        made.append(ScriptedModel(script))
        return made[-1]

    yield make
    _check_refused(problem for model in made for problem in model.refused)


@pytest.fixture
def strict_model_server() -> Iterator[Callable[[Script], StrictModelServer]]:
    """Start a server that plays a script over HTTP: `strict_model_server([...])`, stopped with the test.

    The test fails when the server had to refuse anything.
    """
    from amoxi_py.testing.model_server import StrictModelServer

    started: list[StrictModelServer] = []

    def start(script: Script) -> StrictModelServer:
        server = StrictModelServer(script)
        server.start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()
    _check_refused(problem for server in started for problem in server.refused)


@pytest.fixture
def amoxi_model() -> Any:
    """What answers in `amoxi_app`: the offline model. Write a fixture of this name to give another."""
    return "offline"


@pytest.fixture
def amoxi_replace() -> Mapping[type[Any], Any]:
    """Instances by type for `amoxi_app`, in place of the app's own: none. Write a fixture of this name to give some."""
    return {}


@pytest.fixture
def amoxi_settings() -> Mapping[str, Any]:
    """Settings by key for `amoxi_app`: none but those of the files. Write a fixture of this name to give some."""
    return {}


@pytest.fixture
def amoxi_app(
    amoxi_folder: Path,
    tmp_path: Path,
    amoxi_model: Any,
    amoxi_replace: Mapping[type[Any], Any],
    amoxi_settings: Mapping[str, Any],
) -> Iterator[AppServer]:
    """The app under test, on a store of its own, served at `amoxi_app.url` while the test runs."""
    from amoxi_py.testing.servers import AppServer

    with AppServer(
        amoxi_folder, tmp_path / "amoxi-store", model=amoxi_model, replace=amoxi_replace, settings=amoxi_settings
    ) as server:
        yield server


@pytest.fixture
def amoxi_client(amoxi_app: AppServer) -> Client:
    """A visitor of `amoxi_app`; `amoxi_app.client()` gives more."""
    return amoxi_app.client()


def _check_refused(problems: Iterator[str]) -> None:
    refused = "; ".join(problems)
    assert not refused, f"a model of the test refused: {refused}"
