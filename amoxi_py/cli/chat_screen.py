"""What a person sees of a run: the answer as it grows, and around it, quieter, what its tools do."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, TextIO

import click

from amoxi_py.cli.visible_text import one_line, visible

_LONGEST_ARGUMENTS = 200
_LONGEST_RESULT = 300
_MARKS = {False: "✓", True: "✗"}


class Screen:
    """Prints events of runs: answers on stdout; all else there too on a terminal, and on stderr in a pipe.

    A `silent` one prints no answers.
    """

    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent
        self._notes: TextIO = sys.stdout if sys.stdout.isatty() else sys.stderr
        self._styled = self._notes.isatty() and not os.environ.get("NO_COLOR")
        self._tools: dict[str, str] = {}
        self._message: str | None = None
        self._told = 0
        self._in_line = False

    def show(self, label: str, data: Mapping[str, Any]) -> None:
        """Print one event, if it is one that people see."""
        show: dict[str, Callable[[Mapping[str, Any]], None]] = {
            "message.delta": self._delta,
            "message.completed": self._completed,
            "message.discarded": self._discarded,
            "tool.called": self._called,
            "tool.progress": self._progress,
            "question.answered": self._answered,
            "signal.received": lambda data: self.note(f"  (signal {data['name']})"),
            "tool.completed": self._tool_completed,
            "run.resumed": lambda data: self.note("(taken up again where it was interrupted)"),
            "run.failed": lambda data: self.note(f"failed: {data['error']['message']} ({data['error']['code']})"),
            "run.cancelled": lambda data: self.note("cancelled"),
        }
        if label in show:
            show[label](data)

    def note(self, text: str) -> None:
        """Print a line that is no part of the answer."""
        self.end_line()
        line = visible(text)
        print(click.style(line, dim=True) if self._styled else line, file=self._notes, flush=True)

    def message(self, message: Mapping[str, Any]) -> None:
        """Print a whole message of an earlier turn."""
        self.end_line()
        if message["role"] == "user":
            self.note(f"> {message['text']}")
        elif message["text"]:
            print(visible(message["text"]), flush=True)
        for call in message["calls"]:
            self._called(call)
            if call["result"] is not None:
                self._tool_completed({**call, "is_error": call["status"] != "done"})

    def end_line(self) -> None:
        """Let what comes next begin on a line of its own."""
        if self._in_line:
            print(flush=True)
            self._in_line = False

    def _write(self, text: str) -> None:
        if text and not self._silent:
            print(visible(text), end="", flush=True)
            self._in_line = not text.endswith("\n")

    def _delta(self, data: Mapping[str, Any]) -> None:
        if data["message_id"] != self._message:
            self.end_line()
            self._message, self._told = data["message_id"], 0
        end = data["offset"] + len(data["text"])
        if data["offset"] <= self._told < end:
            self._write(data["text"][self._told - data["offset"] :])
            self._told = end

    def _completed(self, data: Mapping[str, Any]) -> None:
        message = data["message"]
        if message["role"] == "user":
            return
        told = self._told if message["id"] == self._message else 0
        if not told:
            self.end_line()
        self._write(message["text"][told:])
        self.end_line()
        self._message, self._told = None, 0

    def _discarded(self, data: Mapping[str, Any]) -> None:
        if data["message_id"] == self._message and self._told:
            self.note("(the answer broke off; it begins anew)")
        self._message, self._told = None, 0

    def _called(self, data: Mapping[str, Any]) -> None:
        self._tools[data["call_id"]] = data["tool"]
        self.note(f"  {data['tool']} {arguments_text(data['arguments'], _LONGEST_ARGUMENTS)}")

    def _progress(self, data: Mapping[str, Any]) -> None:
        self.note(f"  … {one_line(data['text'])}")

    def _answered(self, data: Mapping[str, Any]) -> None:
        self.note(
            f"  {self._tools.get(data['call_id'], '')}: answered {arguments_text(data['answer'], _LONGEST_RESULT)}"
        )

    def _tool_completed(self, data: Mapping[str, Any]) -> None:
        tool = self._tools.get(data["call_id"], "")
        result = data["result"] if isinstance(data["result"], str) else arguments_text(data["result"])
        self.note(f"  {_MARKS[bool(data['is_error'])]} {tool}: {one_line(result, _LONGEST_RESULT)}")


def arguments_text(value: Any, longest: int | None = None) -> str:
    """Return a JSON value as one readable line."""
    from amoxi_py.domain.encoding import encode_json_unicode

    return one_line(encode_json_unicode(value), longest)
