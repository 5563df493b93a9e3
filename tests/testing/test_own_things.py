"""What `run_agent` finds and takes of providers and of settings of an app's own."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, SecretStr

from amoxi_py import Inject, agent, provides, settings, singleton, tool
from amoxi_py.errors import ConfigError, DeclarationError
from amoxi_py.testing import ScriptedModel, call, run_agent


@settings("shop")
class ShopSettings(BaseModel):
    name: str
    api_key: SecretStr | None = None


class Clock:
    def __init__(self, now: str) -> None:
        self.now = now


@singleton
class Shop:
    def __init__(self, settings: ShopSettings) -> None:
        self.settings = settings

    @tool(read_only=True)
    def about(self, clock: Annotated[Clock, Inject]) -> str:
        """Say what it is called, and what time it is."""
        return f"{self.settings.name} at {clock.now}"


@provides
def clock_of_the_module() -> Clock:
    return Clock("ten")


@provides
def of_no_interest(nothing: BaseModel) -> Shop:
    raise AssertionError("nobody asked for it")


@agent(tools=[Shop])
class ShopAgent:
    """You run a shop."""


def about(agent: Any = ShopAgent, **options: Any) -> Any:
    return run_agent(agent, "go", model=ScriptedModel([call("about"), "ok"]), **options).call("about").result


def test_providers_beside_the_agent_are_found_and_settings_are_given_by_key() -> None:
    assert about(settings={"shop.name": "Tents"}) == "Tents at ten"


def test_a_ready_model_and_a_ready_thing_take_the_place_of_both() -> None:
    ready = {ShopSettings: ShopSettings(name="Boots"), Clock: Clock("noon")}
    assert about(replace=ready) == "Boots at noon"


def test_providers_in_the_function_around_the_agent_are_found() -> None:
    class Weather: ...

    @provides(scope="call")
    def weather() -> Weather:
        return Weather()

    @tool
    def about(weather: Annotated[Weather, Inject]) -> str:
        """Tell."""
        return type(weather).__name__

    @agent(tools=[about])
    class Local:
        """You are here."""

    assert run_agent(Local, "go", model=ScriptedModel([call("about"), "ok"])).call("about").result == "Weather"


def test_what_is_not_set_and_what_is_unknown_stops_the_run_before_it_begins() -> None:
    with pytest.raises(ConfigError) as caught:
        about(settings={"shop.nmae": "Tents"})
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "'shop.nmae' in the command is no setting; did you mean 'shop.name'?",
        "'shop.name' is not set, and has no default",
    ]


def test_what_nobody_provides_stops_the_run_before_it_begins() -> None:
    class Weather: ...

    @tool
    def about(weather: Annotated[Weather, Inject]) -> str:
        """Tell."""
        return ""

    @agent(tools=[about])
    class Local:
        """You are here."""

    with pytest.raises(DeclarationError, match="Weather', which nothing provides"):
        run_agent(Local, "go")
