"""The body of an Anthropic Messages request, written from a `ModelRequest`.

The API checks signed reasoning against everything that stood before it when the model wrote it, and refuses the request
when any of that has changed. So each reply keeps a digest of what it was asked with, and its reasoning is given back
only behind exactly that; a changed prompt, another set of tools or a shortened history costs the reasoning, and nothing
else.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from amoxi_py.domain.encoding import decode_json
from amoxi_py.models.kept import keep, read_kept
from amoxi_py.models.sent_files import FileLimits, Form, ShownFile, ShownFiles
from amoxi_py.ports.chat_model import AssistantMessage, ModelRequest, ToolResult, ToolSpec

PROVIDER = "anthropic"
MOST_MARKS = 4
CACHE_MARK: Mapping[str, Any] = {"type": "ephemeral"}
ALL_FORMS: frozenset[Form] = frozenset({"picture", "pdf", "text"})
# a picture has at most 5 MiB in base64, a request 32 MB; above 20 pictures smaller ones are asked for
FILE_LIMITS = FileLimits(picture=5 * 1024 * 1024 * 3 // 4, document=20 * 1024 * 1024, pictures=20, all=20 * 1024 * 1024)
_WITHOUT_SAMPLING = re.compile(r"(?:.*[./])?claude-(?!3|(?:opus|sonnet|haiku)-4(?:-[0-6])?(?:-\d{8})?\Z|(?:instant|2))")
_THINKING = frozenset({"thinking", "redacted_thinking"})

Block = dict[str, Any]


class AnthropicPrompt:
    """What a model is asked, in the form of this API.

    Attributes:
        system: The blocks of the system prompt.
        tools: The tools.
        messages: The messages, without marks for the cache.
        gives_reasoning: Whether reasoning of earlier replies is among them.

    Args:
        request: What is asked.
        model: The model's name, to know its own reasoning by.
        tools: The tools as `write_tools` gives them.
        forms: In which forms files are shown.
        reasoning: Whether the model gets its reasoning back.
    """

    def __init__(
        self,
        request: ModelRequest,
        model: str,
        tools: list[Block],
        forms: Collection[Form] = ALL_FORMS,
        *,
        reasoning: bool = True,
    ) -> None:
        self.system = [_text(request.instructions)] if request.instructions.strip() else []
        self.tools = tools
        self.messages: list[dict[str, Any]] = []
        self.gives_reasoning = False
        self._model = model
        self._reasoning = reasoning
        self._digest: Any = None
        self._digested = 0
        shown = ShownFiles(request.messages, FILE_LIMITS)
        for message in request.messages:
            if isinstance(message, AssistantMessage):
                if message.text.strip() or message.calls:
                    self.messages.append({"role": "assistant", "content": self._write_reply(message)})
                continue
            if isinstance(message, ToolResult):
                blocks = [_write_result(message)]
            else:
                files = [file for file in shown.of(message) if file.form in forms] if message.files else []
                blocks = [*map(_write_file, files), _text(message.content)]
            if self.messages and self.messages[-1]["role"] == "user":
                # all results of one reply stand in one message, and what a person said after them behind them
                self.messages[-1]["content"].extend(blocks)
            else:
                self.messages.append({"role": "user", "content": blocks})

    @property
    def digest(self) -> str:
        """A digest of all that is asked so far: the system prompt, the tools and the messages."""
        if self._digest is None:
            self._digest = hashlib.blake2b(msgspec.json.encode([self.system, self.tools]), digest_size=16)
        for message in self.messages[self._digested :]:
            self._digest.update(msgspec.json.encode(message))
        self._digested = len(self.messages)
        found: str = self._digest.hexdigest()
        return found

    @property
    def may_think(self) -> bool:
        """Whether the API would take thinking with a fixed budget: a reply in the open tool loop must begin with it."""
        for message in reversed(self.messages):
            kinds = [block["type"] for block in message["content"]]
            if message["role"] == "user":
                if "tool_result" not in kinds:
                    return True
            elif "tool_use" in kinds and kinds[0] not in _THINKING:
                return False
        return True

    def keep(self, blocks: Sequence[Block]) -> str | None:
        """Return what is to be kept of a reply to this prompt: its reasoning, and where its text stood between.

        `blocks` are the reply's, in order, up to its first call: reasoning behind a call is bound to an id that later
        requests do not have.
        """
        if not any(block["type"] in _THINKING for block in blocks):
            return None
        return keep(
            PROVIDER,
            self._model,
            {
                "after": self.digest,
                "blocks": [
                    block if block["type"] in _THINKING else {"type": "text", "length": len(block["text"])}
                    for block in blocks
                ],
            },
        )

    def marked(self, mark: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the fields `system`, `tools` and `messages` with marks for the cache at the ends of what stays.

        The marks are: the stable front; the history before the newest message of a person, which stays while its run
        goes on; the end of the request before this one; and the end of this one.
        """
        system, tools, messages = self.system, self.tools, self.messages
        if mark is not None:
            if system:
                system = _marked_last(system, mark)
            elif tools:
                tools = _marked_last(tools, mark)
            messages = list(messages)
            for place in self._ends():
                content = _marked_last(messages[place]["content"], mark)
                messages[place] = {**messages[place], "content": content}
        fields: dict[str, Any] = {"messages": messages}
        if system:
            fields["system"] = system
        if tools:
            fields["tools"] = tools
        return fields

    def _ends(self) -> set[int]:
        last = len(self.messages) - 1
        replies = [place for place in range(last, -1, -1) if self.messages[place]["role"] == "assistant"]
        ends = {last}
        if replies:
            ends.add(replies[0] - 1)
        asked = next(
            (
                place
                for place in range(last, -1, -1)
                if any(block["type"] != "tool_result" for block in self.messages[place]["content"])
                and self.messages[place]["role"] == "user"
            ),
            0,
        )
        ends.add(asked - 1)
        return {place for place in ends if place >= 0}

    def _write_reply(self, message: AssistantMessage) -> list[Block]:
        blocks = self._with_reasoning(message)
        if blocks is None:
            blocks = [_text(message.text)] if message.text.strip() else []
        for call in message.calls:
            blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": decode_json(call.arguments)})
        return blocks

    def _with_reasoning(self, message: AssistantMessage) -> list[Block] | None:
        """Return the reasoning and the text of a reply in their order, or None when it has none that may be given."""
        kept = read_kept(message.kept, PROVIDER, self._model) if self._reasoning else None
        if kept is None or kept.get("after") != self.digest:
            return None
        self.gives_reasoning = True
        blocks: list[Block] = []
        start = 0
        for block in kept.get("blocks") or ():
            if block["type"] in _THINKING:
                blocks.append(block)
                continue
            text = message.text[start : start + block["length"]]
            start += block["length"]
            if text.strip():  # the API gives out blank texts, and takes none back
                blocks.append(_text(text))
        rest = message.text[start:]
        if rest.strip():
            blocks.append(_text(rest))
        return blocks


def takes_sampling(model: str) -> bool:
    """Return whether a model takes `temperature` and its like: from Opus 4.7 on they do not, so no new one will."""
    return _WITHOUT_SAMPLING.match(model) is None


def write_tools(tools: Sequence[ToolSpec]) -> list[Block]:
    """Return the `tools` of a request."""
    return [
        {
            "name": tool.name,
            **({"description": tool.description} if tool.description else {}),
            "input_schema": tool.parameters,
        }
        for tool in tools
    ]


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _write_result(result: ToolResult) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": result.call_id}
    if result.content.strip():  # a blank text is none here
        block["content"] = result.content
    if result.is_error:
        block["is_error"] = True
    return block


def _write_file(file: ShownFile) -> Block:
    if file.form == "text":
        return _text(file.text)
    source = {"type": "base64", "media_type": file.media_type, "data": file.base64}
    if file.form == "picture":
        return {"type": "image", "source": source}
    return {"type": "document", "source": source, "title": file.name[:200] or "document"}


def _marked_last(blocks: Sequence[Block], mark: Mapping[str, Any]) -> list[Block]:
    marked = list(blocks)
    for place in range(len(marked) - 1, -1, -1):
        if marked[place].get("type") not in _THINKING:  # reasoning takes no mark
            marked[place] = {**marked[place], "cache_control": mark}
            break
    return marked
