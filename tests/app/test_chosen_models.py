"""An agent whose model is a function of the run: who is asked with which key, and what its mistakes come to."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from amoxi_py import Principal
from amoxi_py.app.runtime import open_runtime
from amoxi_py.config.load import load_settings
from amoxi_py.testing import StrictModelServer, call

AGENTS = '''
import os
from typing import Annotated

from amoxi_py import Inject, RunContext, agent, singleton, tool
from amoxi_py.errors import ModelFailed
from amoxi_py.models import ChatModel, OpenAIModel
from amoxi_py.ports.chat_model import Reply

asked = []
closed = []


class Keyed:
    name = "keyed"

    def __init__(self, key):
        self.identity = ("keyed", key)

    async def stream(self, request):
        yield Reply(text=f"With {self.identity[1]}, {id(self)}.")

    async def aclose(self):
        closed.append(self.identity[1])


@singleton
class Tenants:
    keys = {"acme": "sk-of-acme", "blue": "sk-of-blue"}


@tool(read_only=True)
def look() -> str:
    """Look."""
    return "seen"


async def key_of_tenant(ctx: RunContext, tenants: Annotated[Tenants, Inject]) -> ChatModel:
    asked.append(ctx.principal.tenant)
    return OpenAIModel("m", tenants.keys[ctx.principal.tenant], os.environ["SERVER"])


def by_plan(ctx):
    return "openai:large" if "paying" in ctx.principal.roles else None


def fails_once(ctx):
    asked.append(ctx.agent)
    if len(asked) == 1:
        raise ConnectionError("the vault is away")
    return ["openai:named"]


@agent(tools=[look], model=key_of_tenant)
class ByTenant:
    """You help."""


@agent(model=lambda ctx: OpenAIModel("gpt-4", "sk-of-acme", os.environ["SERVER"]))
class SmallWindow:
    """You help."""


@agent(model=by_plan)
class ByPlan:
    """You help."""


@agent(model=fails_once)
class FailsOnce:
    """You help."""


@agent(model=lambda ctx: 42)
class Nonsense:
    """You help."""


@agent(model=lambda ctx: Keyed(ctx.principal.tenant))
class OwnModel:
    """You help."""


class Nameless:
    name = "nameless"

    async def stream(self, request):
        raise ModelFailed("away", code="model_unavailable")
        yield


@agent(model=lambda ctx: [Nameless(), Keyed(ctx.principal.tenant)])
class OwnChain:
    """You help."""
'''
PACKAGE = "app_that_chooses"


@pytest.fixture
def package() -> Iterator[str]:
    """The name of an app's package that is forgotten after the test."""
    path = list(sys.path)
    yield PACKAGE
    sys.path[:] = path
    for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
        del sys.modules[name]


@pytest.fixture
def talk(app_folder: Any, package: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Asks agents of the app, one after another in one process, and returns the runs."""
    folder: Path = app_folder({f"{package}/__init__.py": "", f"{package}/agents.py": AGENTS})

    def run(server: StrictModelServer, *messages: tuple[str, Principal], texts: tuple[str, ...] = ()) -> list[Any]:
        monkeypatch.setenv("SERVER", server.url)
        environ = {"APP_PACKAGE": package, "OPENAI_API_KEY": "sk-of-the-app", "OPENAI_BASE_URL": server.url}

        async def play() -> list[Any]:
            async with open_runtime(load_settings(folder, environ=environ)) as runtime:
                runs: list[Any] = []
                for place, (name, principal) in enumerate(messages):
                    text = texts[place] if texts else "Hello"
                    goes_on = runs[-1].conversation_id if texts and runs else None
                    submitted = await runtime.engine.submit(name, text, principal=principal, conversation_id=goes_on)
                    runs.append(await runtime.engine.wait(submitted.run.id, principal, timeout=20))
                return runs

        return asyncio.run(play())

    return run


def of(tenant: str | None = None, *roles: str) -> Principal:
    return Principal(id="user:ann", tenant=tenant, roles=frozenset(roles))


def test_each_tenants_runs_are_asked_with_its_own_key_and_the_function_is_asked_once_while_a_run_goes_on(
    talk: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with StrictModelServer({"*": [call("look"), "Done."]}) as server:
        runs = talk(server, ("by-tenant", of("acme")), ("by-tenant", of("blue")))
        assert [run.output for run in runs] == ["Done.", "Done."]
        assert server.keys == ["sk-of-acme"] * 2 + ["sk-of-blue"] * 2
    assert sys.modules[f"{PACKAGE}.agents"].asked == ["acme", "blue"]
    assert "sk-of" not in caplog.text


def test_a_function_may_name_a_model_or_leave_it_to_the_setting(talk: Any) -> None:
    with StrictModelServer({"*": ["Done."]}) as server:
        runs = talk(server, ("by-plan", of(None, "paying")), ("by-plan", of()))
        assert [run.status for run in runs] == ["completed", "completed"]
        assert b'"model":"large"' in server.bodies[0].replace(b'": "', b'":"')
        assert b'"large"' not in server.bodies[1]


def test_a_function_that_fails_is_asked_again_and_one_that_gives_no_model_ends_the_run(
    talk: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with StrictModelServer({"*": ["Done."]}) as server:
        again, nonsense = talk(server, ("fails-once", of()), ("nonsense", of()))
        assert (again.status, again.output) == ("completed", "Done.")
        assert (nonsense.status, nonsense.error.code) == ("failed", "model_choice_failed")
        assert len(server.bodies) == 1
    assert "42" not in nonsense.error.message
    assert "42 is no model" in caplog.text


def test_the_window_of_a_chosen_model_is_known_before_it_is_asked(talk: Any) -> None:
    with StrictModelServer(["Noted.", "They said much.", "Noted too."]) as server:
        talk(server, *[("small-window", of("acme"))] * 2, texts=("word " * 7000, "And now?"))
        assert len(server.bodies) == 3
        assert [len(body) > 30_000 for body in server.bodies] == [True, False, False]


def test_equal_models_of_many_runs_are_one_that_is_closed_when_the_process_stops(talk: Any) -> None:
    with StrictModelServer([]) as server:
        asked = [(name, of(tenant)) for tenant in ("acme", "acme", "blue") for name in ("own-model", "own-chain")]
        outputs = [run.output for run in talk(server, *asked)]
        assert outputs[0] is not None
        assert len(set(outputs[:4])) == 1
        assert len(set(outputs)) == 2
    assert sorted(sys.modules[f"{PACKAGE}.agents"].closed) == ["acme", "blue"]
