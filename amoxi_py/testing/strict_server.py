"""The strict model server as a command, for tests that start real processes.

`python -m amoxi_py.testing.strict_server --script FILE.json [--port N]` plays a script, prints its base URLs when it
listens (the first line is the one for OpenAI clients, the second for Anthropic's), and writes what it refused to
stderr. A script is a list of replies, or an object of such lists by the person's message (`"*"` for any other). A reply
is one of

- a text, or a list of parts: texts, `{"call": "refund_order", "arguments": {"order_id": "A-1001"}}` (a text as
  arguments is sent as it is, an `"id"` too), `{"thinking": "...", "redacted": false}`, `{"pause": 0.5}`,
  `{"gate_file": "/tmp/go"}` (wait until the file is there);
- `{"slowly": "a text", "seconds": 0.05}`: word by word;
- `{"parts": [...], "ending": "cut"}`, with an ending of `amoxi_py.testing.broken`;
- `{"fail": 503, "text": "...", "reason": "...", "retry_after": 1}`;
- `{"tries": [...]}`: replies to the first, second, ... try of the same request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amoxi_py.models.script import (
    Part,
    Script,
    ScriptedReply,
    ScriptItem,
    call,
    fail,
    pause,
    raw_call,
    slowly,
    thinking,
    tries,
)
from amoxi_py.testing.model_server import StrictModelServer

__all__ = ["StrictModelServer", "main", "read_script"]


@dataclass(frozen=True, slots=True)
class _GateFile:
    path: Path

    async def wait(self) -> None:
        while not self.path.exists():  # noqa: ASYNC110 - another process makes the file: nothing can tell us
            await asyncio.sleep(0.01)


def read_script(value: Any) -> Script:
    """Return the script that a JSON value describes; raise `ValueError` for one that describes none."""
    if isinstance(value, dict):
        return {text: [_read_reply(item) for item in replies] for text, replies in value.items()}
    if isinstance(value, list):
        return [_read_reply(item) for item in value]
    raise ValueError(f"{value!r} is no script: it must be a list of replies, or an object of such lists")


def main(arguments: list[str] | None = None) -> None:
    """Serve a script until the process is ended."""
    parser = argparse.ArgumentParser(prog="python -m amoxi_py.testing.strict_server")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", type=Path, required=True)
    options = parser.parse_args(arguments)
    script = read_script(json.loads(options.script.read_text(encoding="utf-8")))
    with StrictModelServer(script, port=options.port, on_refused=_tell) as server:
        sys.stdout.write(f"{server.url}\n{server.anthropic_url}\n")
        sys.stdout.flush()
        threading.Event().wait()


def _tell(problem: str) -> None:
    sys.stderr.write(f"refused: {problem}\n")


def _read_reply(item: Any) -> ScriptItem:
    if isinstance(item, dict) and "fail" in item:
        rest = {key: value for key, value in item.items() if key != "fail"}
        return fail(item["fail"], **rest)
    if isinstance(item, dict) and "tries" in item:
        return tries(*(_read_reply(part) for part in item["tries"]))
    if isinstance(item, dict) and "slowly" in item:
        return slowly(item["slowly"], item.get("seconds", 0.05))
    if isinstance(item, dict) and "parts" in item:
        parts = tuple(_read_part(part) for part in item["parts"])
        return ScriptedReply(parts=parts, ending=item.get("ending", "finished"))
    return ScriptedReply(parts=tuple(_read_part(part) for part in (item if isinstance(item, list) else [item])))


def _read_part(part: Any) -> Part:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and "call" in part:
        arguments = part.get("arguments", {})
        if not isinstance(arguments, str):
            arguments = call(part["call"], **arguments).arguments
        return raw_call(part["call"], arguments, part.get("id"))
    if isinstance(part, dict) and "thinking" in part:
        return thinking(part["thinking"], redacted=part.get("redacted", False))
    if isinstance(part, dict) and "pause" in part:
        return pause(part["pause"])
    if isinstance(part, dict) and "gate_file" in part:
        return _GateFile(Path(part["gate_file"]))
    raise ValueError(f"{part!r} is no part of a scripted reply")


if __name__ == "__main__":
    main()
