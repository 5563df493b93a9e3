"""What is asked of a server under load, and by which bytes of its answer a turn's first word and its end are known."""

from __future__ import annotations

import msgspec


class Target(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A chat server's outside. In texts `{session}` stands for the conversation, `{n}` for the number of its turn.

    Attributes:
        path: Where a message is posted.
        body: The message; `content_type` is its kind.
        first: Is in the answer's body from the first word on.
        end: Is in the body of an answer that was completed.
        headers: Lines of each request, `Name: value`.
        opening_body: The first message of a conversation, where the server gives it its id; else the client does.
        setup_path, setup_body: Asked before the first message of a conversation, where it has to be made.
        session_field: The name in a JSON answer under which the conversation's id is found: in that of `setup_path`,
            else in that to the first message.
    """

    path: str
    body: str
    first: str
    end: str
    content_type: str = "application/json"
    headers: tuple[str, ...] = ()
    opening_body: str | None = None
    setup_path: str | None = None
    setup_body: str = "{}"
    session_field: str | None = None


def amoxi_target(agent: str, *, prefix: str = "", headers: tuple[str, ...] = ()) -> Target:
    """Return how an agent of an app of ours is talked to."""
    return Target(
        path=f"{prefix}/agents/{agent}/runs",
        body='{"message": "Tell me more, please: {n}", "conversation_id": "{session}"}',
        opening_body='{"message": "Hello, tell me something."}',
        session_field="conversation_id",
        first="event: message.delta",
        end="event: run.completed",
        headers=("Accept: text/event-stream", *headers),
    )


class Load(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A closed loop of clients: each has one conversation and sends its next message when the last one is answered.

    Attributes:
        host, port: The server, by address.
        target: What is asked of it.
        clients: How many at once.
        ramp_s: They begin within this time, one after the other: all at once would go on in one step.
        warmup_s: What ends before is not counted, but for errors.
        window_s, windows: What is counted, one window after the other.
        turn_timeout_s: A turn that takes longer is an error.
        turns_each: A conversation has so many turns, then the client begins a new one.
        longest_wait_s: A client that is refused (429) waits as `Retry-After` says, but at most this long.
    """

    host: str
    port: int
    target: Target
    clients: int
    ramp_s: float = 0.0
    warmup_s: float = 0.0
    window_s: float
    windows: int = 1
    turn_timeout_s: float = 60.0
    turns_each: int = 10
    longest_wait_s: float = 1.0
