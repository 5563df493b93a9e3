"""The bell between servers: rings after commits for others to hear, and hears theirs; one thread, one connection.

A notification inside a writing transaction would make all commits of the database wait for each other, so it has a
transaction of its own, at most one in 20 ms, and says only which conversations have news. What is heard can be lost
(a dropped connection, a pooler), so the bell is only a hint: the log is the truth. Whether it is heard at all is tried
again and again, from another connection, because a pooler lets a connection hear what it has rung itself; while it is
not heard, `poll` is called 4 times a second.
"""

from __future__ import annotations

import logging
import random
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Any

import psycopg
from msgspec import Struct

from amoxi_py.domain.ids import new_id
from amoxi_py.stores.postgres.connection import Address
from amoxi_py.stores.postgres.waiting import wait_for
from amoxi_py.stores.postgres.writer import News

log = logging.getLogger("amoxi_py.stores")

_RING_EVERY_S = 0.02
_POLL_EVERY_S = 0.25
_POLL_HEARD_EVERY_S = 2.0
_TRY_EVERY_S = 15.0
_TRY_S = 2.0
_SHORTEST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
_LONGEST_PAYLOAD = 7900
_TRIAL = "?"
_NOTIFY = (
    "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, payload) FROM unnest(%s::text[]) AS payload"
)
_SPREAD_S = 0.001  # for each process that hears: as many looks for due runs in a second, however many hear of them
_WIDEST_S = 0.25


class Hearing(Struct, frozen=True):
    """What a bell calls, from its thread: others' news; news that were surely missed; and time to look by oneself.

    `try_it` is to tell a channel something over another connection, soon; what fails is passed over.
    """

    news: Callable[[Sequence[News], bool], None]
    missed: Callable[[], None]
    poll: Callable[[], None]
    try_it: Callable[[str, str], None]


class Bell:
    """The thread and its connection."""

    def __init__(self, address: Address, hearing: Hearing) -> None:
        self._address = address
        self._channel = f"amoxi {address.schema}"[:63]
        self._hearing = hearing
        self._own = new_id("bell")
        self._lock = threading.Lock()
        self._waiting: dict[int, News] = {}
        self._due = False
        self._stopping = False
        self._awake, self._wake = socket.socketpair()
        self._wake.setblocking(False)
        self._thread = threading.Thread(target=self._work, name="amoxi-bell", daemon=True)
        self._rang_at = 0.0
        self._tried_at: float | None = None
        self._polled_at = 0.0
        self._unheard = 0  # trials since the last one that was heard
        self._told = False
        self._arrived: list[str] = []
        self._others: dict[str, float] = {}  # when each other bell was heard last
        self._due_at: float | None = None
        self._begun = threading.Event()
        self.heard = True

    def start(self) -> None:
        """Begin to hear; blocks until others are heard, or cannot be now."""
        self._thread.start()
        self._begun.wait()

    def ring(self, news: Sequence[News], due: bool) -> None:
        """Tell others soon; from any thread."""
        with self._lock:
            first = not self._waiting and not self._due
            for one in news:
                known = self._waiting.get(one.conversation)
                if known is not None:
                    first_seq, last_seq = min(known.first, one.first), max(known.last, one.last)
                    one = News(one.conversation, first_seq, last_seq, known.types | one.types)
                self._waiting[one.conversation] = one
            self._due = self._due or due
        if first:
            self._poke()

    def not_tried(self) -> None:
        """Hear that a trial could not be rung: that it is not heard says nothing."""
        self._unheard = max(self._unheard - 1, 0)

    def stop(self) -> None:
        """Ring what waits, and disconnect; blocks."""
        self._stopping = True
        self._poke()
        if self._thread.is_alive():
            self._thread.join()
        self._wake.close()
        self._awake.close()

    # -- the thread

    def _work(self) -> None:
        pause, lost = _SHORTEST_PAUSE_S, False
        while not self._stopping:
            begun = time.monotonic()
            try:
                with closing(self._address.connect()) as connection:
                    connection.add_notify_handler(lambda notification: self._arrived.append(notification.payload))
                    connection.execute(f'LISTEN "{self._channel.replace(chr(34), chr(34) * 2)}"')
                    self._tried_at = None
                    if lost:
                        self._hearing.missed()
                    self._begun.set()
                    self._serve(connection)
            except (psycopg.Error, OSError) as error:
                if not self._stopping:
                    self._say_lost(error)
                    pause = min(2 * pause, _LONGEST_PAUSE_S) if time.monotonic() - begun < _TRY_S else _SHORTEST_PAUSE_S
            except Exception:
                log.exception("hearing of other servers failed; it begins anew")
            lost = True
            self._begun.set()
            self._rest(pause)

    def _rest(self, seconds: float) -> None:
        """Wait before the next try to connect; what others commit is looked for all the same."""
        until = time.monotonic() + seconds
        while not self._stopping and (left := until - time.monotonic()) > 0:
            if time.monotonic() - self._polled_at >= _POLL_EVERY_S:
                self._polled_at = time.monotonic()
                self._hearing.poll()
            if wait_for([self._awake.fileno()], timeout=min(left, _POLL_EVERY_S)):
                self._awake.recv(4096)
                time.sleep(min(left, _RING_EVERY_S))  # what is to be rung waits for the line

    def _serve(self, connection: psycopg.Connection[Any]) -> None:
        while True:
            now = time.monotonic()
            if self._stopping:
                self._ring_now(connection)
                return
            self._try_hearing(connection, now)
            self._hear()
            if (self._waiting or self._due) and now - self._rang_at >= _RING_EVERY_S:
                self._ring_now(connection)
            if now - self._polled_at >= self._poll_every:
                self._polled_at = now
                self._hearing.poll()
            if self._due_at is not None and now >= self._due_at:
                self._due_at = None
                self._hearing.news((), True)
            left = 0.0 if self._arrived else self._time_left()
            readable = wait_for([connection.pgconn.socket, self._awake.fileno()], timeout=left)
            if self._awake.fileno() in readable:
                self._awake.recv(4096)
            if connection.pgconn.socket in readable:
                connection.pgconn.consume_input()
                while (notification := connection.pgconn.notifies()) is not None:
                    self._arrived.append(notification.extra.decode())

    def _time_left(self) -> float:
        now = time.monotonic()
        tried = self._tried_at or now
        until = [tried + (_TRY_S if self._unheard and self.heard else _TRY_EVERY_S)]
        if self._waiting or self._due:
            until.append(self._rang_at + _RING_EVERY_S)
        until.append(self._polled_at + self._poll_every)
        if self._due_at is not None:
            until.append(self._due_at)
        return max(min(until) - now, 0.0)

    @property
    def _poll_every(self) -> float:
        """Also while all is heard: a process can die between its commit and its bell."""
        return _POLL_HEARD_EVERY_S if self.heard else _POLL_EVERY_S

    def _try_hearing(self, connection: psycopg.Connection[Any], now: float) -> None:
        """Let it be rung from elsewhere now and then, and find out whether it was heard."""
        if self._tried_at is None or now - self._tried_at >= _TRY_EVERY_S:
            if self._unheard > 1:  # the line was lost again and again before the time of a trial was up
                self._say_deaf()
            self._tried_at = now
            self._unheard += 1
            connection.execute("SELECT 1")  # a line on which nothing is said is closed by poolers and firewalls
            self._hearing.try_it(self._channel, f"{_TRIAL}{self._own}")
        elif self._unheard and self.heard and now - self._tried_at >= _TRY_S:
            self._say_deaf()

    def _hear(self) -> None:
        arrived, self._arrived = self._arrived, []
        news: list[News] = []
        due = False
        for payload in arrived:
            if payload.startswith(_TRIAL):
                if payload[1:] == self._own:
                    self._unheard = 0
                    self._say_heard()
                else:
                    self._others[payload[1:]] = time.monotonic()
                continue
            origin, _, rest = payload.partition(" ")
            if origin == self._own:
                continue
            flag, *items = rest.split() or ("0",)
            due = due or flag == "1"
            news.extend(one for one in map(_read, items) if one is not None)
        if news:
            self._hearing.news(news, False)
        if due and self._due_at is None:
            self._due_at = time.monotonic() + self._patience()

    def _patience(self) -> float:
        """How long to wait before looking for a run that all hear of at once: the more hear, the longer, at random."""
        long_ago = time.monotonic() - 2.5 * _TRY_EVERY_S
        self._others = {bell: heard for bell, heard in self._others.items() if heard > long_ago}
        return random.random() * min(len(self._others) * _SPREAD_S, _WIDEST_S)  # noqa: S311 - spreads looks of many

    def _ring_now(self, connection: psycopg.Connection[Any]) -> None:
        with self._lock:
            news, due = self._waiting, self._due
            self._waiting, self._due = {}, False
        if not news and not due:
            return
        self._rang_at = time.monotonic()
        try:
            self._notify(connection, _written(self._own, list(news.values()), due))
        except BaseException:  # others hear it over the next line
            self.ring(list(news.values()), due)
            raise

    def _notify(self, connection: psycopg.Connection[Any], payloads: Sequence[str]) -> None:
        connection.execute(_NOTIFY, (self._channel, list(payloads)))

    def _say_lost(self, error: Exception) -> None:
        if not self._told:
            self._told = True
            log.warning("the connection that hears of other servers was lost: %s", self._address.error(error))

    def _say_deaf(self) -> None:
        if self.heard:
            self.heard = False
            log.warning(
                "nothing is heard of other servers over the database's connection (%s), as behind a pooler in "
                "transaction mode: it is looked for 4 times a second instead; set 'ai.store.listen-url' to a "
                "direct connection",
                self._address,
            )

    def _say_heard(self) -> None:
        if self._told or not self.heard:
            log.info("other servers are heard again over %s", self._address)
        self._told, self.heard = False, True

    def _poke(self) -> None:
        with suppress(BlockingIOError, OSError):
            self._wake.send(b".")


def _written(own: str, news: Sequence[News], due: bool) -> list[str]:
    """Return as many payloads as are needed; the flag goes with the first."""
    payloads, payload = [], f"{own} {int(due)}"
    for one in news:
        item = f" {one.conversation:x}.{one.first:x}.{one.last:x}.{one.types:x}"
        if len(payload) + len(item) > _LONGEST_PAYLOAD:
            payloads.append(payload)
            payload = f"{own} 0"
        payload += item
    return [*payloads, payload]


def _read(item: str) -> News | None:
    """Return what an item says; one of a newer version, or of something else on the channel, says nothing."""
    try:
        conversation, first, last, types, *_ = (int(part, 16) for part in item.split("."))
    except ValueError:
        return None
    return News(conversation, first, last, types)
