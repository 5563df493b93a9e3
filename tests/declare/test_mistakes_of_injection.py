"""Every mistake in what is provided and injected stops the start, with its place and the way out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

HEAD = """
from __future__ import annotations
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Annotated, NewType
from pydantic import BaseModel, SecretStr
from amoxi_py import Inject, RunContext, agent, provides, settings, singleton, tool
if TYPE_CHECKING:
    from decimal import Decimal
class Engine: ...
class Session: ...
"""
SESSION = "@provides(scope='call')\ndef session() -> Session: ...\n"

# What is declared, and parts of the one sentence that it gives.
MISTAKES = {
    "a circle of functions": (
        "@provides\ndef engine(s: Session) -> Engine: ...\n@provides\ndef session(e: Engine) -> Session: ...",
        ["they ask for each other in a circle: ", "Engine -> Session -> Engine", "pass one of them later"],
    ),
    "a circle per call": (
        "@provides(scope='call')\ndef engine(s: Session) -> Engine: ...\n"
        "@provides(scope='call')\ndef session(e: Engine) -> Session: ...",
        ["in a circle", "Engine", "Session"],
    ),
    "a circle of a function and a class": (
        "@singleton\nclass Shop:\n    def __init__(self, s: Session): ...\n"
        "@provides\ndef session(shop: Shop) -> Session: ...",
        ["Shop -> Session -> Shop"],
    ),
    "a provider that misses something": (
        "@provides\ndef session(e: Engine) -> Session: ...",
        ["provider 'session'", "'e' of the function asks for 'Engine', which nothing provides", "@provides"],
    ),
    "a tool that misses something": (
        "@tool\ndef f(db: Annotated[Session, Inject]) -> None: ...",
        ["tool 'f'", "parameter 'db' asks for 'Session', which nothing provides", "@provides that returns it"],
    ),
    "needs_approval that misses something": (
        "def ask(ctx, db: Annotated[Session, Inject]): ...\n@tool(needs_approval=ask)\ndef f() -> None: ...",
        ["tool 'f': its `needs_approval`", "parameter 'db' asks for 'Session'"],
    ),
    "reconcile that misses something": (
        "def look(ctx, db: Annotated[Session, Inject]): ...\n@tool(reconcile=look)\ndef f() -> None: ...",
        ["tool 'f': its `reconcile`", "parameter 'db' asks for 'Session'"],
    ),
    "instructions that miss something": (
        "@agent\nclass A:\n    def instructions(self, ctx, db: Annotated[Session, Inject]): ...",
        ["agent 'a': its `instructions`", "parameter 'db' asks for 'Session'"],
    ),
    "a base class of what is there": (
        "class Fast(Session): ...\n@provides\ndef fast() -> Fast: ...\n"
        "@tool\ndef f(db: Annotated[Session, Inject]) -> None: ...",
        ["'Session', which nothing provides; ask for Fast instead"],
    ),
    "two providers of one type": (
        "@provides\ndef one() -> Session: ...\n@provides\ndef two() -> Iterator[Session]: yield Session()",
        ["provider 'two'", "'Session' is given by", "provider 'one' too", "NewType"],
    ),
    "a provider of a singleton": (
        "@singleton\nclass Shop: ...\n@provides\ndef shop() -> Shop: ...",
        ["provider 'shop'", "'Shop' is given by", "singleton 'Shop' too"],
    ),
    "a process-wide function with a thing per call": (
        SESSION + "@provides\ndef engine(s: Session) -> Engine: ...",
        ["provider 'engine'", "'Session', which is there per call, not once per process", '`scope="call"` too'],
    ),
    "a singleton with a thing per call": (
        SESSION + "@singleton\nclass Shop:\n    def __init__(self, db: Session | None = None): ...",
        ["singleton 'Shop'", "'db' of the constructor", "there per call", "Annotated[Session, Inject]"],
    ),
    "a singleton with the run": (
        "@singleton\nclass Shop:\n    def __init__(self, ctx: RunContext): ...",
        ["singleton 'Shop'", "'RunContext', which is there per call"],
    ),
    "no return type": ("@provides\ndef session(): ...", ["provider 'session'", "no return type"]),
    "a return type for the type checker": (
        "@provides\ndef price() -> Decimal: ...",
        ["provider 'price'", "what it returns has the type 'Decimal'", "TYPE_CHECKING"],
    ),
    "a generator that says it returns": (
        "@provides\ndef session() -> Session: yield Session()",
        ["provider 'session'", "generator", "`Iterator[...]`"],
    ),
    "an async generator that says it returns": (
        "@provides\nasync def session() -> Session: yield Session()",
        ["provider 'session'", "generator", "`AsyncIterator[...]`"],
    ),
    "one of several types": ("@provides\ndef f() -> Session | Engine: ...", ["provider 'f'", "several types"]),
    "a type that says too little": ("@provides\ndef url() -> str: ...", ["provider 'url'", "'str'", "NewType"]),
    "an unknown scope": ("@provides(scope='request')\ndef session() -> Session: ...", ["'request'", "'call'"]),
    "an unknown option": (
        "@provides(lifetime='call')\ndef session() -> Session: ...",
        ["@provides has no option 'lifetime'", "scope"],
    ),
    "a parameter without a type": ("@provides\ndef session(e) -> Session: ...", ["'e' of the function", "no type"]),
    "a class that provides": ("@provides\nclass Pool: ...", ["'Pool'", "@provides is for functions", "@singleton"]),
    "a method that provides": (
        "@singleton\nclass Shop:\n    @provides\n    def session(self) -> Session: ...",
        ["'Shop'", "the method 'session'", "outside of the class"],
    ),
    "settings that are no model": ("@settings('shop')\nclass Shop: ...", ["settings 'Shop'", "BaseModel"]),
    "settings without a section": ("@settings\nclass Shop(BaseModel): ...", ["settings 'Shop'", "names no section"]),
    "a section with a bad name": ("@settings('Shop.EU')\nclass Shop(BaseModel): ...", ["'Shop.EU'", "lower-case"]),
    **{
        f"the framework's own section: {name}": (
            f"@settings({name!r})\nclass Shop(BaseModel): ...",
            [f"the section {name!r} is the framework's own", "app, server, ai, log"],
        )
        for name in ("app", "server", "ai", "log", "ai-shop")
    },
    "a section that two claim": (
        "@settings('shop')\nclass One(BaseModel): ...\n@settings('shop')\nclass Two(BaseModel): ...",
        ["settings 'Two'", "'shop' is claimed by 'One' too"],
    ),
    "settings that cannot be read": (
        "@settings('shop')\nclass Shop(BaseModel):\n    price: Decimal",
        ["settings 'Shop'", "Decimal"],
    ),
}


@pytest.mark.parametrize(("text", "parts"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_of_injection_stops_the_start_with_its_place(
    told_alone: Callable[[str, list[str]], None], text: str, parts: list[str]
) -> None:
    told_alone(HEAD + text, parts)
