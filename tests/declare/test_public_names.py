"""The names that an app imports: exactly the listed ones, light to import, and typed as they are used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import amoxi_py

LISTED = Path(__file__).parent.parent / "public_api.txt"

TYPED = '''
from amoxi_py import ToolContext, agent, configure, singleton, step, tool


@tool
async def bare(x: int, ctx: ToolContext) -> str:
    done = await ctx.step("one", pay, 5)
    reveal_type(done)
    return str(x)


@tool(idempotent=True)
def with_options(x: int) -> str:
    return str(x)


@step(retries=2)
async def pay(amount: int) -> bytes:
    return b""


@singleton
class Tools:
    def __init__(self, start: int) -> None: ...

    @tool(name="other")
    def method(self, x: int) -> str:
        return str(x)


@agent(tools=[Tools, bare])
class Helper:
    """Help."""

    name = "a"


@configure
def pages(app: object) -> None: ...


reveal_type(bare)
reveal_type(with_options(1))
reveal_type(Tools(1).method(2))
reveal_type(Helper.name)
reveal_type(pages)
with_options("x")
Tools("x")
tool(nonsense=True)
'''


def test_the_public_names_are_the_listed_ones() -> None:
    assert LISTED.read_text("utf-8").split() == sorted(amoxi_py.__all__)
    assert set(amoxi_py.__all__) <= set(dir(amoxi_py))


@pytest.mark.parametrize("name", [name for name in amoxi_py.__all__ if name != "create_app"])
def test_each_public_name_can_be_imported(name: str) -> None:
    assert getattr(amoxi_py, name).__name__ == name


def test_an_unknown_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = amoxi_py.nonsense


@pytest.mark.parametrize(
    ("code", "unwanted"),
    [
        ("import amoxi_py", ["amoxi_py.", "pydantic", "asyncio", "importlib.metadata"]),
        (
            "from amoxi_py import tool, agent, singleton, step, configure, ToolContext",
            ["pydantic", "dishka", "asyncio"],
        ),
    ],
)
def test_importing_the_package_imports_nothing_heavy(code: str, unwanted: list[str]) -> None:
    done = subprocess.run([sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True)
    imported = [line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()]
    assert "amoxi_py" in imported
    assert [name for name in imported if name.startswith(tuple(unwanted))] == []


def test_decorated_things_keep_their_types(tmp_path: Path) -> None:
    file = tmp_path / "typed.py"
    file.write_text(TYPED, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--follow-imports=silent", str(file)],
        capture_output=True,
        text=True,
        cwd=Path(amoxi_py.__file__).parent.parent,
    )
    told = [line.split(": ", 1)[1] for line in done.stdout.splitlines()]
    revealed = [line.removeprefix('note: Revealed type is "')[:-1] for line in told if line.startswith("note: Rev")]
    assert revealed == [
        "bytes",
        "def (x: int, ctx: amoxi_py.declare.context.ToolContext) -> typing.Coroutine[Any, Any, str]",
        "str",
        "str",
        "str",
        "def (app: object)",
    ], done.stdout
    errors = [line for line in told if line.startswith("error: ")]
    assert len(errors) == 3, done.stdout
    assert '"with_options"' in errors[0]
    assert '"Tools"' in errors[1]
    assert '"nonsense"' in errors[2]
