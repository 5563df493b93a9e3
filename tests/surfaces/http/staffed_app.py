"""An app with a sign-in, approvers of every kind, and readers; its people are those of two companies."""

from typing import Any

from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request

from amoxi_py import ApprovalRequest, NotAuthenticated, Principal, ToolContext, agent, authenticate, singleton, tool

SECRET = "eyJhbGciOi.the-secret-of-a-person.U2lnbmF0dXJl"


@singleton
class Directory:
    """Who signs in as whom."""

    def __init__(self) -> None:
        self.people: dict[str, Any] = {
            "ann": Principal(id="42", name="Ann", tenant="acme", claims={"plan": "gold"}),
            "fin": Principal(id="7", name="Fin", tenant="acme", roles={"finance"}),  # type: ignore[arg-type]
            "gus": Principal(id="8", name="Gus", tenant="globex", roles=frozenset({"finance", "desk"})),
            "ann-elsewhere": Principal(id="42", tenant="globex"),
            "ann-nowhere": Principal(id="42"),
            "bob": Principal(id="9"),
            "colon": Principal(id="mcp:desktop", channel="mcp"),
            "api": Principal(id="api:acme", channel="api"),
            "nobody": None,
        }

    def answer(self, who: str) -> Any:
        """Return what the sign-in returns for somebody."""
        wrong: dict[str, Any] = {
            "text": "42",
            "empty": Principal(id=""),
            "blank": Principal(id=" \t"),
            "number": Principal(id=42),  # type: ignore[arg-type]
            "control": Principal(id="42\x1facme"),
            "nul": Principal(id="4\x002"),
            "half": Principal(id="4\ud8002"),
            "long": Principal(id="4" * 256),
            "role": Principal(id="42", roles=frozenset({3})),  # type: ignore[arg-type]
            "tenant": Principal(id="42", tenant=3),  # type: ignore[arg-type]
            "claims": Principal(id="42", claims={"x": object()}),
            "nan": Principal(id="42", claims={"x": float("nan")}),
            "many": Principal(id="42", claims={"x": "x" * 4096}),
            "list": Principal(id="42", claims=[1]),  # type: ignore[arg-type]
        }
        return {**self.people, **wrong}[who]


@authenticate
async def sign_in(request: Request, directory: Directory) -> Principal | None:
    """Ask the directory by the header `x-user`."""
    who = request.headers.get("x-user")
    if who is None:
        return None
    if who == "expired":
        raise NotAuthenticated("the sign-in has expired")
    if who == "bare":
        raise NotAuthenticated
    if who == "teapot":
        raise HTTPException(403, "not from here")
    if who == "raises":
        raise RuntimeError(f"cannot read {dict(request.headers)} of {request.url}")
    if who == "letters":
        return Principal(id="42", roles="finance")  # type: ignore[arg-type]
    answer: Principal | None = directory.answer(who)
    return answer


def four_eyes(principal: Principal, approval: ApprovalRequest, directory: Directory) -> bool:
    """Another person than the one who asked; the arguments can make it fail."""
    assert isinstance(directory, Directory)
    if approval.arguments["what"] == "raises":
        raise RuntimeError("the rule is broken")
    if approval.arguments["what"] == "no bool":
        return "yes"  # type: ignore[return-value]
    return principal.id != approval.requested_by.id and principal.channel == "web"


@tool(needs_approval=True)
async def own(what: str) -> str:
    """Do what the one who asks approves."""
    return what


@tool(needs_approval=True, approver="role:finance")
async def pay(what: str) -> str:
    """Do what finance approves."""
    return what


@tool(needs_approval=True, approver=four_eyes)
async def delete(what: str) -> str:
    """Do what somebody else approves."""
    return what


class Address(BaseModel):
    """Where to."""

    street: str
    number: int = Field(gt=0)


@tool(idempotent=True)
async def move(what: str, ctx: ToolContext) -> Any:
    """Ask for an address, for a word, and wait until it is paid.

    Args:
        what: What to move
    """
    address = await ctx.ask(f"Where to with {what}?", Address, timeout=3600)
    word = await ctx.ask("The word?")
    return [address.street, word, await ctx.wait_for("paid")]


@agent(tools=[own, pay, delete, move])
class Desk:
    """You do what you are told."""


@agent(tools=[own, pay], readers="role:finance")
class OpenDesk:
    """You do what you are told, and finance reads it."""


@agent(tools=[own, move], expose=False)
class Inner:
    """You do what you are told."""


@agent(agents=[Inner], readers="role:finance")
class Middle:
    """You ask."""


@agent(agents=[Middle], readers="role:finance")
class Reception:
    """You ask."""
