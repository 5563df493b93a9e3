"""An app's own file under a strict mypy: every option of every decorator type-checks, and what is wrong does not.

The options, and so the cache, are those of this repository.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import amoxi_py

APP = '''
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

from msgspec.structs import replace
from pydantic import BaseModel, Field

from amoxi_py import (
    ApprovalRequest, Budget, Compaction, Done, File, Inject, ModelRequest, NotDone, PlannedCall, Principal, Refuse,
    Reply, Run, RunContext, RunEvent, Runs, SyncToolContext, ToolContext, Unknown, after_model, agent, authenticate,
    before_model, before_tool, configure, on, provides, redact, settings, singleton, step, tool,
)


class Verdict(BaseModel):
    order: str
    refund: bool


class Session:
    def pay(self, amount: int) -> bytes:
        return b""


@settings("shop")
class ShopSettings(BaseModel):
    name: str = "shop"


@provides(scope="call")
async def session(config: ShopSettings) -> AsyncIterator[Session]:
    yield Session()


@step(retries=2, timeout=5)
async def pay(amount: int) -> bytes:
    return b""


def needed(ctx: RunContext, amount: int) -> bool:
    return amount > 100


def look_back(ctx: ToolContext, amount: int) -> Done | NotDone | Unknown:
    return Done("paid")


def decides(principal: Principal, approval: ApprovalRequest) -> bool:
    return "finance" in principal.roles


@tool
async def bare(x: int, ctx: ToolContext) -> str:
    reveal_type(await ctx.step("one", pay, 5))  # reveals: bytes
    reveal_type(await ctx.step("two", len, "abc"))  # reveals: int
    reveal_type(await ctx.ask("Which?"))  # reveals: str
    reveal_type(await ctx.ask("How many?", int, timeout=timedelta(days=1)))  # reveals: int
    reveal_type(await ctx.ask("What?", Verdict))  # reveals: Verdict
    await ctx.sleep(2.5)
    reveal_type(await ctx.wait_for("paid", timeout=60))  # reveals: Any
    reveal_type(await ctx.save_file("a.txt", b""))  # reveals: File
    await ctx.ask(5)  # wrong: "int"
    await ctx.step("three", pay, "much")  # wrong: No overload variant
    return str(x)


@tool(
    name="other", idempotent=True, needs_approval=needed, approver=decides, allow=lambda principal: True, expose=False,
    timeout=5, retries=2,
)
def with_options(x: int, session: Annotated[Session, Inject], ctx: SyncToolContext) -> str:
    reveal_type(ctx.ask("Which?", Verdict))  # reveals: Verdict
    return str(x)


@tool(reconcile=look_back)
def unsafe(amount: Annotated[int, Field(gt=0)]) -> str:
    return ""


@singleton
class Tools:
    def __init__(self, start: int) -> None: ...

    @tool(read_only=True, approver="role:finance")
    def method(self, x: int) -> str:
        return str(x)

    @before_tool(tools=[bare, "other"], agents=["helper"])
    async def cap(self, ctx: RunContext, call: PlannedCall) -> Mapping[str, Any] | Refuse | None:
        return Refuse("no") if call.arguments["x"] else None

    @redact
    def hide(self, text: str) -> str:
        return text


@agent
class Plain:
    """Help."""


@agent(
    tools=[Tools, bare, Tools.method], agents=[Plain], model=["openai:gpt-5", "offline"], model_options={"top_p": 1},
    description="Helps.", result=Verdict, budget=Budget(turns=5, tokens=1000, usd=0.5, seconds=60), max_turns=9,
    on_busy="queue", expose=False, allow=lambda principal: bool(principal.roles), readers="role:audit",
    compaction=Compaction(at=0.5),
)
class Helper:
    """Help."""

    name = "a"


@before_model(agents=[Helper])
def add(ctx: RunContext, request: ModelRequest) -> ModelRequest | None:
    return replace(request, instructions=request.instructions + "!")


@after_model(agents=["plain"], streams=True)
async def look(ctx: RunContext, reply: Reply) -> Reply | None:
    return replace(reply, text="")


@redact(longest=20)
def hide(text: str) -> str:
    return text


@authenticate
def sign_in(request: object) -> Principal | None:
    return None


@configure
def pages(app: object, config: ShopSettings) -> None: ...


@on("run.failed", name="mailer", timeout=None)
async def mail(event: RunEvent, runs: Runs) -> None:
    reveal_type(await runs.submit("helper", "Hello"))  # reveals: Run


reveal_type(bare)  # reveals: def (x: int, ctx: ToolContext) -> Coroutine[Any, Any, str]
reveal_type(unsafe(1))  # reveals: str
reveal_type(Tools(1).method(2))  # reveals: str
reveal_type(Helper.name)  # reveals: str
reveal_type(hide)  # reveals: def (text: str) -> str
reveal_type(add)  # reveals: def (ctx: RunContext, request: ModelRequest) -> ModelRequest | None

unsafe("x")  # wrong: "unsafe"
Tools("x")  # wrong: "Tools"
tool(nonsense=True)  # wrong: "nonsense"
agent(result=5)  # wrong: No overload variant
agent(result=int)  # wrong: "type[BaseModel] | None"
agent(budget=1000)  # wrong: No overload variant
agent(on_busy="drop")  # wrong: No overload variant
agent(agents=Plain)  # wrong: No overload variant
Budget(euros=5)  # wrong: "euros"
Budget(turns="5")  # wrong: expected "int | None"
before_tool(agents=Helper)  # wrong: No overload variant
after_model(streams="yes")  # wrong: No overload variant
redact(longest="20")  # wrong: No overload variant


@before_model  # wrong: before_model
def gives_a_text(ctx: RunContext, request: ModelRequest) -> str:
    return ""


@after_model()  # wrong: Value of type variable
async def gives_a_request(ctx: RunContext, reply: Reply) -> ModelRequest:
    return ModelRequest(instructions="", messages=())


@before_tool  # wrong: before_tool
def gives_a_number(ctx: RunContext, call: PlannedCall) -> int:
    return 5


@redact  # wrong: redact
async def later(text: str) -> str:
    return text
'''


def test_a_users_file_is_checked_as_it_is_used(tmp_path: Path) -> None:
    file = tmp_path / "typed.py"
    file.write_text(APP, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", str(file)],
        capture_output=True,
        text=True,
        cwd=Path(amoxi_py.__file__).parent.parent,
        check=False,
    )
    told: dict[int, list[str]] = {}
    for line in done.stdout.splitlines():
        if (place := re.search(r"typed\.py:(\d+): (.*)", line)) is not None:
            told.setdefault(int(place[1]), []).append(place[2])
    lines = [(line, told.get(number, [])) for number, line in enumerate(APP.splitlines(), 1)]
    odd = [f"{line} -> {'; '.join(found)}" for line, found in lines if not fits(line, found)]
    assert odd == [], "\n".join(odd)


def fits(line: str, found: list[str]) -> bool:
    """Whether mypy says of a line what its comments say that it does."""
    wanted = dict(re.findall(r"# (reveals|wrong): (.*?)(?=  # |$)", line))
    revealed = [match[1] for text in found if (match := re.match(r'note: Revealed type is "(.*)"', text))]
    short = [re.sub(r"\b[a-z_]+\.(?=[\w.]*[A-Z])|typing\.", "", one) for one in revealed]
    errors = " ".join(text for text in found if text.startswith("error:"))
    if bool(errors) != ("wrong" in wanted) or wanted.get("wrong", "") not in errors:
        return False
    return short == ([wanted["reveals"]] if "reveals" in wanted else [])
