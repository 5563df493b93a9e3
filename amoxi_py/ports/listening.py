"""How a store tells a process what was committed, by whomever; all of it is called on the event loop.

A store may tell every event of every conversation. One with many servers on it need not: what others commit in
conversations that nobody here follows, waits in or executes is told in a word (`Interest.news`), and only what happens
in the others is told event by event.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from amoxi_py.domain.event import Event, EventType

EventListener = Callable[[Sequence[Event]], None]
GapListener = Callable[[], None]


class Interest(Protocol):
    """What a process wants to be told of others.

    `run.cancelled` and `approval.decided` are told of every conversation: a run may be cancelled or decided about
    between its claim and the moment when this process is interested in it.
    """

    def conversations(self) -> Collection[int]:
        """Return the store's keys of the conversations whose events are wanted one by one; it may be a live view.

        An event may be committed after the store asked for these and before it looked: of a conversation that was not
        among them then and is now, the store says `missed`, for whoever began to follow it may wait for that event.
        """
        ...

    def news(self, types: Collection[EventType], due: bool) -> None:
        """Hear that events of these types were committed that are not told one by one.

        `due` says that a run may be claimable now.
        """
        ...

    def missed(self, conversation: int) -> None:
        """Hear that events of this conversation may have been passed over.

        Who follows it reads its log anew, who executes a run in it looks whether its lease is current, who waits for
        the end of one looks whether it has come.
        """
        ...
