"""What `@redact` hides is in nothing that the door keeps of a partner's messages."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

OVER = "TASK_STATE_COMPLETED"
REDACTED = """
from amoxi_py import ToolContext, agent, redact, tool
from amoxi_py.testing import ScriptedModel, call


@redact
def hide(text: str) -> str:
    return text.replace("sesame", "[secret]")


@tool(needs_approval=True)
async def erase(path: str) -> str:
    "Erase a file."
    return path


@tool(idempotent=True)
async def introduce(ctx: ToolContext) -> str:
    "Ask something."
    return await ctx.ask("Your name?")


@agent(tools=[erase, introduce], model=ScriptedModel([call("erase", path="/a"), call("introduce"), "Done."]))
class Clerk:
    "You erase."
"""


def test_what_the_app_hides_is_in_nothing_that_is_kept_of_an_answer(a2a_app: Any, tmp_path: Path) -> None:
    async def scene() -> None:
        async with a2a_app(REDACTED) as app, app.caller() as partner:
            task = await partner.send("Do it")
            task = await partner.send("no: sesame", id="one", taskId=task["id"])
            assert "sesame" not in str(task)
            assert await partner.send("no: sesame", id="one", taskId=task["id"]) == task
            task = await partner.send("sesame", id="two", taskId=task["id"])
            assert task["status"]["state"] == OVER
            assert "no: [secret]" in str(task["history"])
            assert "sesame" not in str(task)
        for file in (tmp_path / "store").rglob("*"):
            assert file.is_dir() or b"sesame" not in file.read_bytes()

    asyncio.run(scene())
