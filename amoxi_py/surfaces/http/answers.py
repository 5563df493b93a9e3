"""What a client gets: the JSON of each thing, with its type.

The types are for mypy and for OpenAPI; nothing is validated on the way out.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, cast

from starlette.responses import Response
from typing_extensions import TypedDict  # pydantic takes this one before Python 3.12

from amoxi_py.declare.definitions import AgentDefinition
from amoxi_py.domain.approval import Approval
from amoxi_py.domain.encoding import decode_json, encode_json
from amoxi_py.domain.event import message_json, time_text
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run, Waiting
from amoxi_py.domain.tool_call import Effect
from amoxi_py.ports.files import StoredFile
from amoxi_py.ports.views import CallView, Conversation, ConversationPage, Page

Status = Literal["queued", "running", "waiting", "completed", "failed", "cancelled"]


class ToolJson(TypedDict):
    """A tool of an agent."""

    name: str
    description: str
    read_only: bool
    idempotent: bool
    needs_approval: bool


class AgentJson(TypedDict):
    """An agent that the caller may use."""

    name: str
    description: str
    tools: list[ToolJson]


class AgentsJson(TypedDict):
    """All agents that the caller may use."""

    items: list[AgentJson]
    next_cursor: str | None


class ErrorJson(TypedDict):
    """Why a run failed."""

    code: str
    message: str


class WaitingJson(TypedDict):
    """One thing that a run waits for.

    A question has its text, its number `k` in the call and, unless a text answers it, the JSON Schema of its answer; a
    signal has its name; a child run the agent that was asked.
    """

    kind: Literal["approval", "question", "sleep", "signal", "child", "model"]
    call_id: str | None
    tool: str | None
    arguments: dict[str, Any] | None
    expires_at: str | None
    question: NotRequired[str | None]
    k: NotRequired[int | None]
    schema: NotRequired[dict[str, Any] | None]
    name: NotRequired[str | None]
    agent: NotRequired[str | None]


class UsageJson(TypedDict):
    """What a run, and all below it, has used of its models; `cached_tokens` are among the tokens in.

    The cost is in US dollars, and 0 where no price is known.
    """

    requests: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: float


class RunJson(TypedDict):
    """A run."""

    id: str
    agent: str
    conversation_id: str
    status: Status
    output: str | None
    result: Any
    error: ErrorJson | None
    waiting_for: list[WaitingJson]
    attempt: int
    usage: UsageJson
    created_at: str
    updated_at: str


class RunsJson(TypedDict):
    """Some runs, newest first."""

    items: list[RunJson]
    next_cursor: str | None


class RequesterJson(TypedDict):
    """Who asked for a call."""

    id: str
    name: str


class ApprovalJson(TypedDict):
    """The approval of one call; `decision` is null while it is open, `arguments` are those that count."""

    call_id: str
    run_id: str
    agent: str
    tool: str
    arguments: dict[str, Any]
    requested_by: RequesterJson
    created_at: str
    expires_at: str | None
    decision: Literal["approve", "decline", "expire"] | None
    by: str | None
    reason: str | None


class ApprovalsJson(TypedDict):
    """Some open approvals, those of the oldest run first."""

    items: list[ApprovalJson]
    next_cursor: str | None


class QuestionJson(TypedDict):
    """A question of a call, the `k`-th thing that it waited for; `by` is null while nobody has answered.

    Without a `schema` the answer is a text.
    """

    call_id: str
    run_id: str
    agent: str
    tool: str
    k: int
    question: str
    schema: dict[str, Any] | None
    created_at: str
    expires_at: str | None
    answer: Any
    by: str | None


class SignalJson(TypedDict):
    """A signal that a run was sent."""

    id: str
    run_id: str
    name: str


class AskedJson(TypedDict):
    """What a call asked last; `by` is null while nobody has answered."""

    k: int
    question: str
    schema: dict[str, Any] | None
    expires_at: str | None
    answer: Any
    by: str | None


class DecisionJson(TypedDict):
    """What was decided about a call, by whom and why."""

    decision: Literal["approve", "decline", "expire"]
    by: str | None
    reason: str | None


class CallJson(TypedDict):
    """A call of a tool in a message; `approval` when one was asked for and decided, `question` when it asked one."""

    call_id: str
    tool: str
    arguments: dict[str, Any]
    status: Literal["open", "waiting", "started", "done", "failed", "declined", "stopped", "unknown"]
    result: Any
    edited_arguments: NotRequired[dict[str, Any]]
    approval: NotRequired[DecisionJson]
    question: NotRequired[AskedJson]


class MessageJson(TypedDict):
    """A message of a conversation."""

    id: str
    role: Literal["user", "assistant"]
    text: str
    files: list[str]
    calls: list[CallJson]
    status: Literal["complete", "stopped"]
    run_id: str
    created_at: str


class FileJson(TypedDict):
    """A file; `size` is in bytes."""

    id: str
    name: str
    media_type: str
    size: int
    created_at: str


class ConversationJson(TypedDict):
    """A conversation in a list."""

    id: str
    agent: str
    title: str
    created_at: str
    updated_at: str


class ConversationsJson(TypedDict):
    """Some conversations, newest first."""

    items: list[ConversationJson]
    next_cursor: str | None


class ConversationPageJson(ConversationJson):
    """A conversation with some of its messages, oldest first; the cursor gives the ones before.

    A stream after `last_event_id` goes on from the newest page without gap or double.
    """

    items: list[MessageJson]
    next_cursor: str | None
    last_event_id: int


class HealthJson(TypedDict):
    """How the server is."""

    status: str


def json_answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return an answer of JSON that nobody keeps: it is somebody's own."""
    return Response(
        encode_json(value).encode("ascii"),
        status_code=status,
        headers={"cache-control": "no-store", **(headers or {})},
        media_type="application/json",
    )


def agent_json(agent: AgentDefinition, principal: Principal) -> AgentJson:
    """Return an agent with the tools that exist for this principal."""
    return {
        "name": agent.name,
        "description": agent.description,
        "tools": [
            {
                "name": tool.name,
                "description": tool.description,
                "read_only": tool.effect is Effect.READ_ONLY,
                "idempotent": tool.effect is Effect.IDEMPOTENT,
                "needs_approval": tool.needs_approval is not False,
            }
            for tool in agent.tools
            if tool.exists_for(principal)
        ],
    }


def run_json(run: Run) -> RunJson:
    """Return a run as its owner reads it."""
    return {
        "id": run.id,
        "agent": run.agent,
        "conversation_id": run.conversation_id,
        "status": run.status.value,
        "output": run.output,
        "result": None if run.result is None else decode_json(run.result),
        "error": None if run.error is None else {"code": run.error.code, "message": run.error.message},
        "waiting_for": [_waiting_json(waiting) for waiting in run.waiting_for],
        "attempt": run.attempt,
        "usage": {
            "requests": run.usage.requests,
            "input_tokens": run.usage.input_tokens,
            "output_tokens": run.usage.output_tokens,
            "cached_tokens": run.usage.cached_tokens,
            "cost_usd": run.usage.cost / 1_000_000_000,
        },
        "created_at": time_text(run.created_at),
        "updated_at": time_text(run.updated_at),
    }


def runs_json(page: Page[Run]) -> RunsJson:
    """Return a page of runs."""
    return {"items": [run_json(run) for run in page.items], "next_cursor": page.next_cursor}


def approval_json(approval: Approval, view: CallView) -> ApprovalJson:
    """Return the approval of a call."""
    return {
        "call_id": view.call.id,
        "run_id": view.run_id,
        "agent": view.agent,
        "tool": view.call.tool,
        "arguments": decode_json(view.call.arguments if approval.arguments is None else approval.arguments),
        "requested_by": {"id": view.requested_by.id, "name": view.requested_by.name},
        "created_at": time_text(approval.created_at),
        "expires_at": _time(approval.expires_at),
        "decision": approval.decision,
        "by": approval.by,
        "reason": approval.reason,
    }


def question_json(view: CallView) -> QuestionJson:
    """Return the question of a call, with its answer."""
    wait = view.call.wait
    assert wait is not None, "the call has asked"
    return {
        "call_id": view.call.id,
        "run_id": view.run_id,
        "agent": view.agent,
        "tool": view.call.tool,
        "k": wait.k,
        "question": wait.name,
        "schema": _value(wait.schema),
        "created_at": time_text(wait.created_at),
        "expires_at": _time(wait.until),
        "answer": _value(wait.value),
        "by": wait.by,
    }


def file_json(stored: StoredFile) -> FileJson:
    """Return what a file's owner is told of it."""
    file = stored.file
    return {
        "id": file.id,
        "name": file.name,
        "media_type": file.media_type,
        "size": file.size,
        "created_at": time_text(stored.created_at),
    }


def approvals_json(page: Page[CallView]) -> ApprovalsJson:
    """Return a page of approvals."""
    items = [approval_json(view.call.approval, view) for view in page.items if view.call.approval is not None]
    return {"items": items, "next_cursor": page.next_cursor}


def conversation_json(conversation: Conversation) -> ConversationJson:
    """Return a conversation as lists show it."""
    return {
        "id": conversation.id,
        "agent": conversation.agent,
        "title": conversation.title,
        "created_at": time_text(conversation.created_at),
        "updated_at": time_text(conversation.updated_at),
    }


def conversations_json(page: Page[Conversation]) -> ConversationsJson:
    """Return a page of conversations."""
    return {"items": [conversation_json(each) for each in page.items], "next_cursor": page.next_cursor}


def conversation_page_json(page: ConversationPage, now: float) -> ConversationPageJson:
    """Return a conversation with a page of its messages as they are at a time of the store's clock."""
    return {
        **conversation_json(page.conversation),
        "items": [cast("MessageJson", message_json(message, now=now)) for message in page.messages.items],
        "next_cursor": page.messages.next_cursor,
        "last_event_id": page.last_event_id,
    }


def _waiting_json(waiting: Waiting) -> WaitingJson:
    told: WaitingJson = {
        "kind": waiting.kind,
        "call_id": waiting.call_id,
        "tool": waiting.tool,
        "arguments": None if waiting.arguments is None else decode_json(waiting.arguments),
        "expires_at": _time(waiting.expires_at),
    }
    if waiting.kind == "question":
        told["question"] = waiting.name
        told["k"] = waiting.k
        told["schema"] = _value(waiting.schema)
    elif waiting.kind == "signal":
        told["name"] = waiting.name
    elif waiting.kind == "child":
        told["agent"] = waiting.name
    return told


def _value(text: str | None) -> Any:
    return None if text is None else decode_json(text)


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else time_text(seconds)
