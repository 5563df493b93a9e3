"""A caller of an app's HTTP door, as a test wants one: runs, events as they come, decisions, messages."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from amoxi_py.testing.agent_run import EventRecord

_FINAL = ("completed", "failed", "cancelled")


class Client:
    """One caller of one server: a browser with a cookie of its own, or with `token` a program.

    Args:
        url: The server's address, without a slash at the end; with the prefix of its settings, if it has one.
        token: A bearer token.
        timeout: Seconds for one answer.

    Attributes:
        http: The bare client, for everything else.
    """

    def __init__(self, url: str, *, token: str | None = None, timeout: float = 40.0) -> None:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        # Without `verify` a client reads no certificates, which takes longer than most of the tests.
        self.http = httpx2.Client(base_url=url, headers=headers, timeout=timeout, verify=False)

    def close(self) -> None:
        """Close the connections."""
        self.http.close()

    def submit(
        self, agent: str, message: str, *, wait: float | None = None, key: str | None = None, **body: Any
    ) -> dict[str, Any]:
        """Send a message and return its run: ended, when it does so within `wait` seconds, else as it is."""
        return self._json(
            self.http.post(
                f"/agents/{agent}/runs",
                json={"message": message, **body},
                params={} if wait is None else {"wait": str(wait)},
                headers={} if key is None else {"idempotency-key": key},
            )
        )

    def run(self, run_id: str) -> dict[str, Any]:
        """Return a run."""
        return self._json(self.http.get(f"/runs/{run_id}"))

    def until_status(self, run_id: str, *statuses: str, timeout: float = 20.0) -> dict[str, Any]:
        """Return the run when it has one of these statuses; by default, when it has ended."""
        wanted = statuses or _FINAL
        begun = time.monotonic()
        while (run := self.run(run_id))["status"] not in wanted:
            waited = time.monotonic() - begun
            if waited > timeout:
                raise AssertionError(f"the run is not {' or '.join(wanted)} within {timeout:g} s: {run!r}")
            time.sleep(min(0.01 + waited / 20, 0.1))
        return run

    def cancel(self, run_id: str) -> dict[str, Any]:
        """Cancel a run and return it."""
        return self._json(self.http.post(f"/runs/{run_id}/cancel"))

    def decide(self, run_id: str, call_id: str, decision: str, **more: Any) -> dict[str, Any]:
        """Decide about a call, `approve` or `decline`, with `reason` or `arguments`; return the approval."""
        return self._json(self.http.post(f"/runs/{run_id}/approvals/{call_id}", json={"decision": decision, **more}))

    def answer(self, run_id: str, call_id: str, answer: Any, **more: Any) -> dict[str, Any]:
        """Answer a question of a call and return the question; `k` is its number, or `question` its text."""
        return self._json(self.http.post(f"/runs/{run_id}/answers/{call_id}", json={"answer": answer, **more}))

    def signal(self, run_id: str, name: str, payload: Any = None) -> dict[str, Any]:
        """Send a signal to a run."""
        return self._json(self.http.post(f"/runs/{run_id}/signals/{name}", json={"payload": payload}))

    def events(self, run_id: str, *, after: int | None = None, timeout: float = 60.0) -> list[EventRecord]:
        """Read a run's stream to its end; one that waits for somebody has none until he decides."""
        deadline = time.monotonic() + timeout
        found: list[EventRecord] = []
        with self.http.stream("GET", f"/runs/{run_id}/events", headers=_resuming(after)) as response:
            for event in _events_of(response):
                if event is not None:
                    found.append(event)
                if time.monotonic() > deadline:  # heard at a heartbeat too
                    raise AssertionError(f"the run has not ended within {timeout:g} s: {self.run(run_id)!r}")
        return found

    @contextmanager
    def follow(self, path: str, *, after: int | None = None) -> Iterator[Iterator[EventRecord]]:
        """Open a stream; what it gives is read as it comes. It is empty where nothing comes any more (204)."""
        with self.http.stream("GET", path, headers=_resuming(after)) as response:
            yield (event for event in _events_of(response) if event is not None)

    def messages(self, agent: str, conversation_id: str) -> list[dict[str, Any]]:
        """Return all messages of a conversation, oldest first."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            params = {"limit": "100", **({"cursor": cursor} if cursor else {})}
            page = self._json(self.http.get(f"/agents/{agent}/conversations/{conversation_id}", params=params))
            found = [*page["items"], *found]
            cursor = page["next_cursor"]
            if not cursor:
                return found

    def memories(self, q: str | None = None, *, limit: int = 50) -> list[dict[str, Any]]:
        """Return what is remembered of this caller, the newest first; with `q` what fits it best."""
        params = {"limit": str(limit), **({} if q is None else {"q": q})}
        found: list[dict[str, Any]] = self._json(self.http.get("/memories", params=params))["items"]
        return found

    def forget(self, memory_id: str) -> None:
        """Forget one memory of this caller."""
        response = self.http.delete(f"/memories/{memory_id}")
        if response.status_code != 204:
            raise AssertionError(f"DELETE /memories/{memory_id}: {response.status_code} {response.text}")

    def _json(self, response: httpx2.Response) -> dict[str, Any]:
        if response.status_code not in (200, 202):
            request = response.request
            raise AssertionError(f"{request.method} {request.url.path}: {response.status_code} {response.text}")
        answer: dict[str, Any] = response.json()
        return answer


def read_events(response: httpx2.Response) -> Iterator[EventRecord]:
    """Read the events of a stream; one that the connection's end cut in the middle is none."""
    return (event for event in _read(response) if event is not None)


def _resuming(after: int | None) -> dict[str, str]:
    return {} if after is None else {"last-event-id": str(after)}


def _events_of(response: httpx2.Response) -> Iterator[EventRecord | None]:
    if response.status_code == 204:
        return iter(())
    if response.status_code != 200:
        response.read()
        raise AssertionError(f"GET {response.request.url.path}: {response.status_code} {response.text}")
    return _read(response)


def _read(response: httpx2.Response) -> Iterator[EventRecord | None]:
    """Read the events of a stream, and None for each heartbeat."""
    fields: dict[str, str] = {}
    for line in response.iter_lines():
        if line.startswith(":"):
            yield None
            continue
        if line:
            name, _, value = line.partition(": ")
            if name in fields or not line.isascii():
                raise AssertionError(f"an event has one line {name!r}, in ASCII; this is none: {line!r}")
            fields[name] = value
        elif fields:
            if list(fields) != ["id", "event", "data"]:
                raise AssertionError(f"an event has an id, a type and data, in this order; this has {list(fields)!r}")
            yield EventRecord(id=int(fields["id"]), type=fields["event"], data=json.loads(fields["data"]))
            fields = {}
