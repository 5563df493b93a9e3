"""What a client may send: models of the bodies, which refuse every field that they do not know."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr


class Body(BaseModel):
    """A body that refuses fields it does not know."""

    model_config = ConfigDict(extra="forbid")


class SubmitBody(Body):
    """A message to an agent."""

    message: StrictStr
    conversation_id: StrictStr | None = None
    files: list[StrictStr] = Field(default=[], max_length=100)


class DecisionBody(Body):
    """A person's decision about a call; `arguments` are edited ones, and only an approval takes them."""

    decision: Literal["approve", "decline"]
    reason: StrictStr | None = Field(default=None, max_length=2000)
    arguments: dict[StrictStr, Any] | None = None


class AnswerBody(Body):
    """A person's answer to a question of a call; `k` is its number, or `question` its text: a client may send twice."""

    answer: Any
    question: StrictStr | None = None
    k: StrictInt | None = None


class SignalBody(Body):
    """What a run is told with a signal: any JSON value."""

    payload: Any = None
