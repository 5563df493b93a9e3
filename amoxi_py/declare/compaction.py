"""`Compaction`: when old turns of an agent's long conversations give way to a summary."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """How an agent keeps long conversations within its model's window.

    What gives way stays in the log and is shown to people as ever; only the model is told a summary in its place.

    Attributes:
        window: Tokens that the model takes, prompt and reply together. Left out, it is what is known of the model;
            where nothing is known, old turns give way only when the provider says that the request is too long.
        at: The share of the window from which old turns give way.
        keep: The share of the window that the newest turns may keep.
        instructions: What the summary has to hold, in place of the usual.
    """

    window: int | None = None
    at: float = 0.8
    keep: float = 0.3
    instructions: str | None = None


def compaction_mistakes(value: object) -> list[str]:
    """Return what is wrong with an agent's option `compaction`."""
    if value is None or isinstance(value, bool):
        return []
    if not isinstance(value, Compaction):
        return [f"`compaction={value!r}` must be a Compaction(...), True or False"]
    wrong = []
    window = value.window
    if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window < 1000):
        wrong.append(f"`Compaction(window={window!r})` must be a whole number of tokens from 1000 up")
    for name, share in (("at", value.at), ("keep", value.keep)):
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
            wrong.append(f"`Compaction({name}={share!r})` must be a share of the window, above 0 and at most 1")
    if not wrong and value.keep >= value.at:
        wrong.append(f"`Compaction(keep={value.keep!r})` must be smaller than `at={value.at!r}`")
    if value.instructions is not None and not (isinstance(value.instructions, str) and value.instructions.strip()):
        wrong.append("`Compaction(instructions=...)` must be a text")
    return wrong
