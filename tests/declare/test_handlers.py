"""`@on`: what cannot work is listed when the app starts, each mistake with its place and the way out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from amoxi_py import RunEvent, on, singleton
from amoxi_py.declare.declarations import build_declarations
from amoxi_py.domain.event import EventType
from amoxi_py.errors import DeclarationError


@singleton
class Mail:
    """Is asked for by handlers."""


class Stranger:
    """Nothing gives one."""


@on("run.failed")
async def unknown_injection(event: RunEvent, stranger: Stranger) -> None: ...


@on("run.broken")
async def unknown_event(event: RunEvent) -> None: ...


@on("message.delta")
async def deltas(event: RunEvent) -> None: ...


@on()
async def no_events(event: RunEvent) -> None: ...


@on("run.failed")
async def no_event_parameter(mail: Mail) -> None: ...


@on("run.failed")
async def two_events(event: RunEvent, again: RunEvent) -> None: ...


@on("run.failed")
async def untyped(event: RunEvent, mail) -> None: ...  # type: ignore[no-untyped-def]  # the mistake


@on("run.failed")
async def positional(event: RunEvent, /) -> None: ...


@on("run.failed", name="a b")
async def odd_name(event: RunEvent) -> None: ...


@on("run.failed", timeout=0)
async def no_time(event: RunEvent) -> None: ...


@on("run.failed")
async def generator(event: RunEvent) -> Any:
    yield event


@on("run.failed", name="odd_method")
class NoFunction:
    """A class."""


class Plain:
    """No singleton."""

    @on("run.failed")
    async def method(self, event: RunEvent) -> None: ...


@pytest.mark.parametrize(
    ("handler", "sentence"),
    [
        (unknown_event, "handler 'unknown_event': there is no event 'run.broken'; the events are: approval.decided, "),
        (deltas, "handler 'deltas': 'message.delta' does not stay in the log; take 'message.completed'"),
        (no_events, "handler 'no_events': @on needs the types of events that it is for: @on(\"run.failed\")"),
        (no_event_parameter, "it takes no event; give it a parameter `event: RunEvent`"),
        (two_events, "parameter 'again': the event goes to 'event' already; take one of the two out"),
        (untyped, "parameter 'mail': it has no type, and things are injected by type"),
        (positional, "parameter 'event': it is positional only, and things are given by name; remove the `/`"),
        (odd_name, "`name='a b'` must be a letter, then letters, digits and any of `_.:-`, up to 128"),
        (no_time, "`timeout=0` must be seconds, more than 0, or None"),
        (generator, "it is a generator, so calling it would do nothing; take the `yield` out"),
        (NoFunction, "@on is for functions, and for methods of a class that is marked with @singleton"),
        (Plain.method, "a method can be a handler of events in a class that is marked with @singleton"),
        (unknown_injection, "'Stranger'"),
    ],
)
def test_a_mistake_in_a_handler_is_listed(handler: Callable[..., Any], sentence: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        build_declarations([handler, Mail])
    assert sentence in "\n".join(refused.value.problems)


def test_two_handlers_of_one_name_are_refused_and_a_name_parts_them() -> None:
    def declared(name: str | None) -> Any:
        @on("run.failed", name=name)
        async def tell(event: RunEvent) -> None: ...

        return tell

    with pytest.raises(
        DeclarationError, match=r"the handler name 'tell' is taken by .*; give one of them another `name=`"
    ):
        build_declarations([declared(None), declared(None)])
    names = [handler.name for handler in build_declarations([declared(None), declared("tell.staff")]).handlers]
    assert names == ["tell", "tell.staff"]


def test_a_handler_stays_callable_and_says_what_it_is_for() -> None:
    @on("run.failed", "run.cancelled")
    def tell(event: RunEvent) -> str:
        return event.type

    (handler,) = build_declarations([tell]).handlers
    assert handler.events == {EventType.RUN_FAILED, EventType.RUN_CANCELLED}
    with pytest.raises(TypeError, match="takes the types of events"):
        on(tell)  # type: ignore[arg-type]  # the mistake
