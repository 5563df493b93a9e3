"""Every mistake in a declaration stops the start, in one message that says where, what, and the way out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from amoxi_py.declare.scan import scan_package
from amoxi_py.errors import DeclarationError

HEAD = """
from __future__ import annotations
import abc, enum, functools
from typing import TYPE_CHECKING, Annotated, Any, Iterator, Protocol
from pydantic import BaseModel, Field
from amoxi_py import agent, authenticate, configure, singleton, step, tool
from amoxi_py import SyncToolContext, ToolContext
if TYPE_CHECKING:
    from decimal import Decimal
class Service: ...
"""

# What is declared, and parts of the one sentence that it gives.
MISTAKES = {
    "untyped parameter": (
        "@tool\ndef send(to): ...",
        ["tool 'send'", "parameter 'to'", "has no type", "`to: str`"],
    ),
    "type only for the type checker": (
        "@tool\ndef pay(amount: Decimal): ...",
        ["tool 'pay'", "parameter 'amount'", "'Decimal'", "TYPE_CHECKING"],
    ),
    "type only for the type checker, deep inside": (
        "@tool\ndef pay(amounts: list[dict[str, Decimal]]): ...",
        ["tool 'pay'", "parameter 'amounts'", "'Decimal'"],
    ),
    "field of a model that cannot be resolved": (
        "class Order(BaseModel):\n    total: Decimal\n@tool\ndef pay(order: Order): ...",
        ["tool 'pay'", "parameter 'order'", "Decimal"],
    ),
    "annotation that is no type": (
        "@tool\ndef pay(amount: list['1 +']): ...",
        ["tool 'pay'", "'amount'", "cannot be read"],
    ),
    "type that JSON cannot fill": (
        "@tool\ndef pay(service: Service): ...",
        ["tool 'pay'", "parameter 'service'", "'Service'", "constructor of a @singleton"],
    ),
    "function as a type": (
        "from collections.abc import Callable\n@tool\ndef f(g: Callable[[], int]): ...",
        ["'g'", "JSON"],
    ),
    "schema with what is no JSON": (
        "@tool\ndef f(x: Annotated[str, Field(json_schema_extra={'x': Service()})]): ...",
        ["tool 'f'", "parameter 'x'", "JSON cannot fill"],
    ),
    "schema with a key that is no text": (
        "@tool\ndef f(x: Annotated[str, Field(json_schema_extra={'\\ud800': 1})]): ...",
        ["tool 'f'", "parameter 'x'", "JSON cannot fill"],
    ),
    "schema made by a function, with what is no JSON": (
        "@tool\ndef f(x: Annotated[str, Field(json_schema_extra=lambda found: found.update(x=Service()))]): ...",
        ["tool 'f'", "parameter 'x'", "JSON cannot fill"],
    ),
    "more tools than providers take": (
        "def numbered(n):\n    @tool(name=f't{n}')\n    def f() -> None: ...\n    return f\n"
        "@agent(tools=[numbered(n) for n in range(129)])\nclass Many:\n    'Help.'",
        ["agent 'many'", "129 tools", "128 at most", "several agents"],
    ),
    "starred arguments": ("@tool\ndef f(*names: str): ...", ["tool 'f'", "`*names`", "by name"]),
    "double-starred arguments": ("@tool\ndef f(**names: str): ...", ["tool 'f'", "`**names`", "by name"]),
    "positional only": ("@tool\ndef f(x: int, /): ...", ["tool 'f'", "parameter 'x'", "remove the `/`"]),
    "name of a parameter that providers refuse": ("@tool\ndef f(größe: int): ...", ["'größe'", "rename it"]),
    "async context in a sync tool": (
        "@tool\ndef f(ctx: ToolContext): ...",
        ["tool 'f'", "parameter 'ctx'", "`SyncToolContext`, not `ToolContext`"],
    ),
    "async context in a sync tool, optional": (
        "@tool\ndef f(c: ToolContext | None = None): ...",
        ["tool 'f'", "parameter 'c'", "`SyncToolContext`, not `ToolContext`"],
    ),
    "sync context in an async tool": (
        "@tool\nasync def f(ctx: SyncToolContext): ...",
        ["tool 'f'", "parameter 'ctx'", "`ToolContext`, not `SyncToolContext`"],
    ),
    "read_only and idempotent": (
        "@tool(read_only=True, idempotent=True)\ndef f() -> None: ...",
        ["tool 'f'", "`read_only` and `idempotent` exclude each other"],
    ),
    "retries of an unsafe tool": (
        "@tool(retries=2)\ndef f() -> None: ...",
        ["tool 'f'", "retries=2", "unsafe", "idempotent=True"],
    ),
    "negative retries": ("@tool(read_only=True, retries=-1)\ndef f(): ...", ["retries=-1", "from 0 up"]),
    "timeout of nothing": ("@tool(timeout=0)\ndef f(): ...", ["tool 'f'", "timeout=0", "above 0"]),
    "flag that is no flag": ("@tool(expose='no')\ndef f(): ...", ["expose='no'", "True or False"]),
    "effect that is no flag": ("@tool(idempotent=1)\ndef f(): ...", ["idempotent=1", "True or False"]),
    "allow that is no function": ("@tool(allow=True)\ndef f(): ...", ["allow=True", "(principal) -> bool"]),
    "allow that is async": ("async def a(p): ...\n@tool(allow=a)\ndef f(): ...", ["tool 'f'", "`allow`", "not async"]),
    "allow that takes nothing": (
        "@tool(allow=lambda: True)\ndef f(): ...",
        ["tool 'f'", "one argument, the principal"],
    ),
    "allow that takes too much": (
        "@agent(allow=lambda p, a: True)\nclass Helper:\n    '''Help.'''",
        ["agent 'helper'", "one argument, the principal"],
    ),
    "approver that is nobody": (
        "@tool(needs_approval=True, approver='boss')\ndef f(): ...",
        ["approver='boss'", "role:<name>"],
    ),
    "approver that takes too little": (
        "@tool(needs_approval=True, approver=lambda principal: True)\ndef f(): ...",
        ["tool 'f'", "`approver` must be a function `(principal, approval) -> bool`"],
    ),
    "approver that asks for what is not there": (
        "def a(p, a, s: Service): ...\n@tool(needs_approval=True, approver=a)\ndef f(): ...",
        ["f", "asks for 'Service'", "nothing provides", "@singleton"],
    ),
    "approver that gives an untyped thing": (
        "def a(p, a, s): ...\n@tool(needs_approval=True, approver=a)\ndef f(): ...",
        ["tool 'f'", "takes 's' besides", "needs a class as its type"],
    ),
    "readers that are nobody": (
        "@agent(readers='staff')\nclass A:\n    '''Help.'''",
        ["agent 'a'", "readers='staff'", "role:<name>", "only the owner reads"],
    ),
    "two sign-ins": (
        "@authenticate\ndef a(request): ...\n@authenticate\ndef b(request): ...",
        ["'b'", "one @authenticate", "'a'", "make one function of both"],
    ),
    "sign-in without a request": (
        "@authenticate\ndef a(): ...",
        ["'a'", "@authenticate must be a function `(request) -> Principal | None`"],
    ),
    "sign-in that yields": ("@authenticate\ndef a(request):\n    yield None", ["'a'", "is a generator"]),
    "sign-in that asks for what is not there": (
        "@authenticate\ndef a(request, s: Service): ...",
        ["'a'", "asks for 'Service'", "nothing provides", "@singleton"],
    ),
    "needs_approval that is text": ("@tool(needs_approval='yes')\ndef f(): ...", ["needs_approval='yes'", "function"]),
    "needs_approval that asks for what is not there": (
        "@tool(needs_approval=lambda ctx, amuont: True)\ndef f(amount: int): ...",
        ["`needs_approval`", "'amuont'", "those are: amount"],
    ),
    "reconcile that asks for what is not there": (
        "def look(ctx: ToolContext, order): ...\n@tool(reconcile=look)\ndef f(amount: int): ...",
        ["`reconcile`", "'order'", "those are: amount"],
    ),
    "reconcile with a typed parameter of another name": (
        "def look(amuont: int): ...\n@tool(reconcile=look)\ndef f(amount: int): ...",
        ["`reconcile`", "'amuont'", "those are: amount"],
    ),
    "reconcile by position": (
        "@tool(reconcile=lambda amount, /: None)\ndef f(amount: int): ...",
        ["`reconcile`", "'amount' positional only", "remove the `/`"],
    ),
    "reconcile that is a generator": (
        "def look(ctx):\n    yield 1\n@tool(reconcile=look)\ndef f(): ...",
        ["`reconcile` is a generator"],
    ),
    "reconcile that is a method of another class": (
        "class Bank:\n    def look(self, ctx): ...\n@tool(reconcile=Bank.look)\ndef f(): ...",
        ["`reconcile`", "'Bank.look' is a method of another class"],
    ),
    "reconcile of an idempotent tool": (
        "@tool(idempotent=True, reconcile=lambda ctx: None)\ndef f(): ...",
        ["tool 'f'", "`reconcile` would never be asked", "`idempotent`"],
    ),
    "reconcile of a read-only tool": (
        "@tool(read_only=True, reconcile=lambda ctx: None)\ndef f(): ...",
        ["`reconcile` would never be asked", "`read_only`"],
    ),
    "reconcile that names no method": (
        "@singleton\nclass T:\n    @tool(reconcile='lok')\n    def f(self): ...",
        ["tool 'f'", "reconcile='lok'", "'T' has no such method"],
    ),
    "reconcile that names a method of a function": (
        "@tool(reconcile='look')\ndef f(): ...",
        ["reconcile='look'", "no method"],
    ),
    "reconcile that is a number": ("@tool(reconcile=3)\ndef f(): ...", ["reconcile=3", "must be a function"]),
    "name on the wire": ("@tool(name='send mail')\ndef f(): ...", ["tool 'send mail'", "letters, digits", "`name=`"]),
    "name that starts with an underscore": ("@tool\ndef _f(): ...", ["tool '_f'", "starts with a letter"]),
    "name that is too long": (f"@tool\ndef {'f' * 65}(): ...", ["up to 64"]),
    "same name twice": (
        "@tool\ndef f(): ...\n@tool(name='f')\ndef g(): ...",
        ["the tool name 'f' is taken by", ".mistaken.f", "`name=`"],
    ),
    "generator": ("@tool\ndef f():\n    yield 1", ["tool 'f'", "generator", "return a list"]),
    "async generator": ("@tool\nasync def f():\n    yield 1", ["tool 'f'", "generator", "return a list"]),
    "returns an iterator": ("@tool\ndef f() -> Iterator[int]: ...", ["tool 'f'", "one result", "return a list"]),
    "returns what JSON has no form for": (
        "@tool\ndef f() -> Service: ...",
        ["tool 'f'", "returns", "'Service'", "pydantic model"],
    ),
    "returns an unknown type": (
        "@tool\ndef f() -> Decimal: ...",
        ["tool 'f'", "returns", "'Decimal'", "TYPE_CHECKING"],
    ),
    "tool on a class": ("@tool\nclass T: ...", ["'T'", "@tool is for functions and methods"]),
    "method without self": (
        "@singleton\nclass T:\n    @tool\n    def f(): ...",
        ["tool 'f'", "no `self`", "@staticmethod"],
    ),
    "override that is no tool": (
        "class A:\n    @tool\n    def f(self): ...\n@singleton\nclass B(A):\n    def f(self): ...",
        ["'B.f'", "without being one", "mark it with @tool"],
    ),
    "agent without instructions": ("@agent\nclass Helper: ...", ["agent 'helper'", "no instructions", "docstring"]),
    "instructions that are no method": (
        "@agent\nclass Helper:\n    instructions = 'Help.'",
        ["agent 'helper'", "`instructions` must be a method"],
    ),
    "instructions that take too much": (
        "@agent\nclass Helper:\n    def instructions(self, ctx, more): ...",
        ["agent 'helper'", "takes the context and what is injected"],
    ),
    "class without tools": (
        "@agent(tools=[Service])\nclass Helper:\n    '''Help.'''",
        ["agent 'helper'", "'Service'", "no methods that are marked with @tool"],
    ),
    "function that is no tool": (
        "def f(): ...\n@agent(tools=[f])\nclass Helper:\n    '''Help.'''",
        ["agent 'helper'", "'f'", "mark it with @tool"],
    ),
    "something that is no tool": (
        "@agent(tools=['f'])\nclass Helper:\n    '''Help.'''",
        ["agent 'helper'", "'f'", "no class"],
    ),
    "instance instead of a class": (
        "class T:\n    @tool\n    def f(self): ...\n@agent(tools=[T()])\nclass Helper:\n    '''Help.'''",
        ["agent 'helper'", "is an instance", "name its class 'T'"],
    ),
    "agent as a tool": (
        "@agent\nclass A:\n    '''Help.'''\n@agent(tools=[A])\nclass B:\n    '''Help.'''",
        ["agent 'b'", "'A'", "is an agent"],
    ),
    "same tool twice": (
        "class T:\n    @tool\n    def f(self): ...\n@agent(tools=[T, T.f])\nclass Helper:\n    '''Help.'''",
        ["agent 'helper'", "'f' stands twice"],
    ),
    "tools that are no list": (
        "class T:\n    @tool\n    def f(self): ...\n@agent(tools=T)\nclass Helper:\n    '''Help.'''",
        ["agent 'helper'", "must be a list"],
    ),
    "agent with tools of its own": (
        "@agent\nclass Helper:\n    '''Help.'''\n    @tool\n    def f(self): ...",
        ["agent 'helper'", "@tool methods itself"],
    ),
    "agent on a function": ("@agent\ndef helper(): ...", ["'helper'", "@agent is for classes"]),
    "same agent twice": (
        "@agent\nclass FooBar:\n    '''Help.'''\n@agent\nclass Foo_Bar:\n    '''Help.'''",
        ["the agent name 'foo-bar' is taken by", "rename a class"],
    ),
    "agent's name": ("@agent\nclass Café:\n    '''Help.'''", ["agent 'café'", "ASCII"]),
    "agent's turns": (
        "@agent(max_turns=0)\nclass Helper:\n    '''Help.'''",
        ["agent 'helper'", "max_turns=0", "from 1 up"],
    ),
    "agent's on_busy": ("@agent(on_busy='wait')\nclass Helper:\n    '''Help.'''", ["on_busy='wait'", "'queue'"]),
    "agent's description": ("@agent(description=3)\nclass Helper:\n    '''Help.'''", ["description=3", "text"]),
    "agent's model options": (
        "@agent(model_options=[1])\nclass Helper:\n    '''Help.'''",
        ["model_options=[1]", "dict"],
    ),
    "agent's model": ("@agent(model='')\nclass Helper:\n    '''Help.'''", ["agent 'helper'", "model=''", "empty"]),
    "agent's list of models": (
        "@agent(model=[])\nclass Helper:\n    '''Help.'''",
        ["agent 'helper'", "names no model"],
    ),
    "agent's function that chooses a model": (
        "def choose(ctx, other): ...\n@agent(model=choose)\nclass Helper:\n    '''Help.'''",
        ["agent 'helper'", "`model` takes the context", "returns a model"],
    ),
    "agent's method that chooses a model": (
        "class A:\n    def choose(self, ctx): ...\n@agent(model=A.choose)\nclass Helper:\n    '''Help.'''",
        ["agent 'helper'", "method without its instance", "Annotated[..., Inject]"],
    ),
    "agent's generator that chooses a model": (
        "def choose(ctx):\n    yield\n@agent(model=choose)\nclass Helper:\n    '''Help.'''",
        ["agent 'helper'", "`model` takes the context"],
    ),
    "agent's model options that are no JSON": (
        "@agent(model_options={'temperature': object()})\nclass Helper:\n    '''Help.'''",
        ["agent 'helper'", "`model_options` cannot be sent"],
    ),
    "agent's allow": ("@agent(allow='all')\nclass Helper:\n    '''Help.'''", ["agent 'helper'", "allow='all'"]),
    "tool in the place of an agent": (
        "@tool\ndef ask_helper(): ...\n@agent\nclass Helper:\n    '''Help.'''",
        ["'ask_helper' belongs to the agent 'helper'", "rename the tool"],
    ),
    "singleton on a function": ("@singleton\ndef f(): ...", ["'f'", "@singleton is for classes"]),
    "untyped constructor": (
        "@singleton\nclass S:\n    def __init__(self, service): ...",
        ["singleton 'S'", "parameter 'service' of the constructor", "no type", "injected by type"],
    ),
    "missing thing": (
        "@singleton\nclass S:\n    def __init__(self, service: Service): ...",
        ["singleton 'S'", "'service'", "'Service'", "nothing provides", "@singleton"],
    ),
    "missing thing with an heir": (
        "@singleton\nclass Special(Service): ...\n@singleton\nclass S:\n    def __init__(self, service: Service): ...",
        ["singleton 'S'", "'Service'", "ask for Special instead"],
    ),
    "constructor's type only for the type checker": (
        "@singleton\nclass S:\n    def __init__(self, d: Decimal): ...",
        ["singleton 'S'", "'d' of the constructor", "'Decimal'", "TYPE_CHECKING"],
    ),
    "circle": (
        "@singleton\nclass A:\n    def __init__(self, b: B): ...\n"
        "@singleton\nclass B:\n    def __init__(self, a: A): ...",
        ["in a circle", "A -> B -> A"],
    ),
    "circle of one": ("@singleton\nclass A:\n    def __init__(self, a: A): ...", ["singleton 'A'", "A -> A"]),
    "abstract singleton": (
        "@singleton\nclass A(abc.ABC):\n    @abc.abstractmethod\n    def f(self): ...",
        ["singleton 'A'", "abstract", "implements it"],
    ),
    "protocol as a singleton": ("@singleton\nclass A(Protocol): ...", ["singleton 'A'", "abstract"]),
    "async configure": ("@configure\nasync def f(app): ...", ["'f'", "not async ones"]),
    "configure asks for what is made later": (
        "@singleton\nclass Shop: ...\n@configure\ndef f(app, shop: Shop): ...",
        ["'f'", "'shop'", "'Shop' is made when the process starts", "only models with @settings"],
    ),
    "configure without the application": ("@configure\ndef f(): ...", ["'f'", "(app: FastAPI) -> None"]),
    "options of a step": (
        "@step(retries=-1)\ndef f(): ...",
        ["cannot be imported", "@step(retries=-1)", "from 0 up", "mistaken.py, line 11"],
    ),
    "unknown option": (
        "@tool(idempotant=True)\ndef f(): ...",
        ["tool 'f'", "@tool has no option 'idempotant'; the options are: name, read_only, idempotent, "],
    ),
    "unknown option of an agent": (
        "@agent(tool=[])\nclass A:\n    '''Help.'''",
        ["agent 'a'", "@agent has no option 'tool'; the options are: tools, agents, model, "],
    ),
    "memory that is no flag": (
        "@agent(memory='on')\nclass A:\n    '''Help.'''",
        ["agent 'a'", "`memory='on'` must be True or False"],
    ),
    "tool with the name of one for memory": (
        "@tool(name='recall')\ndef look(): ...\n@agent(memory=True, tools=[look])\nclass A:\n    '''Help.'''",
        ["agent 'a'", "`memory=True` gives it a tool 'recall'", ".look", "rename that one, or give it `name=`"],
    ),
    "program that ends": (
        "import sys\nsys.exit(3)",
        ["ends the program when it is imported: exit 3", "mistaken.py, line 12", "__main__"],
    ),
    "decorated bound method": (
        "class T:\n    def f(self): ...\ntool(T().f)",
        ["cannot be imported", "@tool cannot mark", "where it is defined"],
    ),
}


@pytest.mark.parametrize(("text", "parts"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_stops_the_start_with_the_place_and_the_way_out(
    told_alone: Callable[[str, list[str]], None], text: str, parts: list[str]
) -> None:
    told_alone(HEAD + text, parts)


def test_all_mistakes_of_all_modules_are_in_one_message(package: Callable[..., str]) -> None:
    name = package(
        one=HEAD + "@tool(timeout=-1)\ndef f(x, y): ...\n@agent\nclass Helper: ...",
        two=HEAD + "@singleton\nclass S:\n    def __init__(self, a, service: Service): ...",
        three="import module_that_is_not_there",
        four="def broken(:",
    )
    with pytest.raises(DeclarationError) as caught:
        scan_package(name)
    problems = caught.value.problems
    assert len(problems) == 8
    assert str(caught.value).startswith("8 mistakes in the app's declarations:\n  - ")
    for module, count in {"one": 4, "two": 2, "three": 1, "four": 1}.items():
        assert len([problem for problem in problems if problem.startswith(f"{name}.{module}:")]) == count


def test_a_wrong_option_and_an_exit_hide_no_other_mistake(package: Callable[..., str]) -> None:
    name = package(
        one=HEAD + "@tool(idempotant=True)\ndef f(x): ...\n@agent(memori=True, max_turns=0)\nclass A:\n    '''A.'''",
        two="raise SystemExit",
        three=HEAD + "@tool\ndef g(y): ...",
    )
    with pytest.raises(DeclarationError) as caught:
        scan_package(name)
    assert len(caught.value.problems) == 6


def test_a_signal_during_the_imports_is_no_mistake_of_the_app(package: Callable[..., str]) -> None:
    name = package(one="class Signal(SystemExit): ...\nraise Signal(0)")
    with pytest.raises(SystemExit):
        scan_package(name)


def test_models_that_cannot_be_used_are_told_with_all_other_mistakes(package: Callable[..., str]) -> None:
    name = package(
        mistaken=HEAD
        + "@tool\ndef f(x): ...\n@agent(model=42)\nclass A:\n    '''A.'''\n@agent(model='x')\nclass B:\n    '''B.'''\n"
        + "@agent(model='good')\nclass C:\n    '''C.'''\n"
    )
    with pytest.raises(DeclarationError) as caught:
        scan_package(name, wrong_model=lambda model: None if model == "good" else f"{model!r} is no model")
    assert [problem.split(": ", 1)[1] for problem in caught.value.problems if "`model`" in problem] == [
        "agent 'a': `model`: 42 is no model",
        "agent 'b': `model`: 'x' is no model",
    ]
    assert len(caught.value.problems) == 3


def test_a_tool_of_two_agents_tells_its_mistake_once(package: Callable[..., str]) -> None:
    name = package(
        mistaken=HEAD
        + "@tool\ndef f(x): ...\n@agent(tools=[f])\nclass A:\n    '''A.'''\n@agent(tools=[f])\nclass B:\n    '''B.'''"
    )
    with pytest.raises(DeclarationError) as caught:
        scan_package(name)
    assert len(caught.value.problems) == 1


def test_every_circle_is_named_beside_what_is_missing(package: Callable[..., str]) -> None:
    name = package(
        mistaken=HEAD
        + "@singleton\nclass A:\n    def __init__(self, b: B, s: Service): ...\n"
        + "@singleton\nclass B:\n    def __init__(self, a: A): ...\n"
        + "@singleton\nclass C:\n    def __init__(self, d: D): ...\n"
        + "@singleton\nclass D:\n    def __init__(self, c: C): ...\n"
    )
    with pytest.raises(DeclarationError) as caught:
        scan_package(name)
    text = str(caught.value)
    assert "A -> B -> A" in text
    assert "C -> D -> C" in text
    assert "'Service'" in text
    assert len(caught.value.problems) == 3
