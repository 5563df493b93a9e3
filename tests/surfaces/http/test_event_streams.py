"""Following a run or a conversation over server-sent events."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from starlette.middleware.gzip import GZipMiddleware

from amoxi_py.domain.event import Event, EventType
from amoxi_py.surfaces.closing import Closing
from amoxi_py.surfaces.http.sse import EventStreamResponse, encode_event

PATH = "/agents/support-agent/runs"


def tale(events: Any) -> list[tuple[int, str, Any]]:
    return [(event.id, event.type, event.data) for event in events]


def test_a_run_is_told_from_its_first_event_to_its_last(house: Any) -> None:
    client = house.api()
    run = house.submit(client, "story", wait=10)
    events = house.events(client, f"/runs/{run['id']}/events")
    assert [event.type for event in events if event.type != "message.delta"] == [
        "run.queued",
        "message.completed",
        "run.started",
        "message.completed",
        "tool.called",
        "tool.progress",
        "tool.completed",
        "message.completed",
        "run.completed",
    ]
    assert all(event.data["run_id"] == run["id"] for event in events)
    ids = [event.id for event in events]
    assert ids == sorted(set(ids))
    assert events[1].data["message"]["role"] == "user"
    assert tale(house.events(client, f"{PATH}/{run['id']}/events")) == tale(events)


def test_reading_again_from_any_event_gives_the_rest_and_nothing_twice(house: Any) -> None:
    client = house.api()
    run = house.submit(client, "story", wait=10)
    path = f"/runs/{run['id']}/events"
    whole = tale(house.events(client, path))
    for at, (seen, _, _) in enumerate(whole[:-1]):
        assert tale(house.events(client, path, headers={"Last-Event-ID": str(seen)})) == whole[at + 1 :]
        assert tale(house.events(client, path, params={"after": str(seen)})) == whole[at + 1 :]


def test_after_the_last_event_there_is_204(shared_house: Any) -> None:
    client = shared_house.api()
    run = shared_house.submit(client, "story", wait=10)
    path = f"/runs/{run['id']}/events"
    last = shared_house.events(client, path)[-1].id
    for answer in (
        client.get(path, headers={"Last-Event-ID": str(last)}),
        client.get(path, params={"after": str(last)}),
    ):
        assert (answer.status_code, answer.content) == (204, b"")


def test_the_header_goes_before_the_parameter(shared_house: Any) -> None:
    client = shared_house.api()
    run = shared_house.submit(client, "story", wait=10)
    path = f"/runs/{run['id']}/events"
    whole = tale(shared_house.events(client, path))
    last = str(whole[-1][0])
    assert (
        tale(shared_house.events(client, path, headers={"Last-Event-ID": str(whole[0][0])}, params={"after": last}))
        == whole[1:]
    )


@pytest.mark.parametrize("header", ["", "x", "-1", "1.5", "99999999999999999999999", "\u0663"])
def test_a_last_event_id_of_another_server_means_the_start(shared_house: Any, header: str) -> None:
    client = shared_house.api()
    run = shared_house.submit(client, "story", wait=10)
    path = f"/runs/{run['id']}/events"
    whole = tale(shared_house.events(client, path))
    for after in ({}, {"after": str(whole[2][0])}):
        told = shared_house.events(client, path, headers=[("Last-Event-ID", header.encode())], params=after)
        assert tale(told) == whole


def test_a_cursor_beyond_the_log_means_the_start(shared_house: Any) -> None:
    client = shared_house.api()
    run = shared_house.submit(client, "story", wait=10)
    path = f"/runs/{run['id']}/events"
    whole = tale(shared_house.events(client, path))
    for beyond in ("1000000", str(10**40)):
        assert tale(shared_house.events(client, path, params={"after": beyond})) == whole


@pytest.mark.parametrize("after", ["-1", "x", "1.5", ""])
def test_an_after_that_is_no_number_of_an_event_is_refused(shared_house: Any, after: str) -> None:
    client = shared_house.api()
    run = shared_house.submit(client, "story", wait=10)
    assert client.get(f"/runs/{run['id']}/events", params={"after": after}).status_code == 422


def test_two_readers_one_of_whom_breaks_off_have_the_same_story(house: Any) -> None:
    client = house.api()
    run = house.submit(client, "wait")
    path = f"/runs/{run['id']}/events"
    told: list[list[Any]] = [[], []]

    def read(mine: list[Any]) -> None:
        mine.extend(house.events(house.api(), path))

    readers = [threading.Thread(target=read, args=(mine,)) for mine in told]
    for reader in readers:
        reader.start()
    with house.follow(client, path) as events:
        first = [next(events), next(events)]
    house.gate.open()
    for reader in readers:
        reader.join(60)
    rest = house.events(client, path, headers={"Last-Event-ID": str(first[-1].id)})

    def without_deltas(events: list[Any]) -> list[Any]:
        return [each for each in tale(events) if each[1] != "message.delta"]

    assert without_deltas(told[0]) == without_deltas(told[1]) == without_deltas(first + rest)
    assert told[0][-1].type == "run.completed"
    text = "".join(event.data["text"] for event in told[0] if event.type == "message.delta")
    finished = [event.data["message"] for event in told[0] if event.type == "message.completed"]
    assert finished[-1]["text"].startswith(text)


def test_headers_and_the_first_events_come_before_the_model_has_said_all(open_house: Callable[..., Any]) -> None:
    house = open_house(wrap=lambda app: GZipMiddleware(app, minimum_size=1))
    client = house.visitor(**{"accept-encoding": "gzip", "authorization": "Bearer acme-token-0123456789"})
    run = house.submit(client, "wait")
    with client.stream("GET", f"/runs/{run['id']}/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["x-accel-buffering"] == "no"
        assert "content-encoding" not in response.headers
        lines = response.iter_lines()
        assert next(lines) == ":"
        for line in lines:
            if "Thinking..." in line:
                break
        house.gate.open()
        assert any("run.completed" in line for line in lines)


def test_silence_is_broken_by_comments_that_no_client_takes_for_an_event(open_house: Callable[..., Any]) -> None:
    house = open_house(heartbeat=0.1)
    client = house.api()
    run = house.submit(client, "wait")
    assert house.gate.wait_reached()
    comments = 0
    with client.stream("GET", f"/runs/{run['id']}/events") as response:
        lines = response.iter_lines()
        for line in lines:
            comments += line == ":"
            if comments == 5:
                break
        house.gate.open()
        assert any("run.completed" in line for line in lines)


def test_a_message_can_be_answered_with_its_own_stream(house: Any) -> None:
    client = house.visitor()
    headers = {"accept": "application/json;q=0.5, text/event-stream", "Idempotency-Key": "k"}
    with client.stream("POST", PATH, json={"message": "story"}, headers=headers) as response:
        assert response.status_code == 200
        location = response.headers["location"]
        text = "".join(response.iter_text())
    ids = [int(line[4:]) for line in text.splitlines() if line.startswith("id: ")]
    assert "event: run.completed" in text
    assert client.get(location).json()["status"] == "completed"
    again = client.post(PATH, json={"message": "story"}, headers={**headers, "Last-Event-ID": str(ids[-1])})
    assert (again.status_code, again.headers["location"]) == (204, location)


def test_a_reader_that_leaves_never_stops_a_run(house: Any) -> None:
    client = house.api()
    with client.stream("POST", PATH, json={"message": "wait"}, headers={"accept": "text/event-stream"}) as response:
        location = response.headers["location"]
        assert house.gate.wait_reached()
    house.gate.open()
    assert house.events(client, location + "/events")[-1].type == "run.completed"


def test_a_reader_that_takes_nothing_slows_nobody_and_has_the_whole_story_later(house: Any) -> None:
    client = house.api()
    run = house.submit(client, "wait")
    port = int(house.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=20) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        conversation = run["conversation_id"]
        path = f"/agents/support-agent/conversations/{conversation}/events"
        head = f"GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer acme-token-0123456789\r\n\r\n"
        slow.sendall(head.encode())
        assert b"200 OK" in slow.recv(200)
        house.gate.open()
        house.events(client, f"/runs/{run['id']}/events")
        flood = house.submit(client, "flood", wait=30, conversation_id=conversation)  # 8 MB of text
        assert flood["status"] == "completed"
        read = b""
        while b"event: run.completed" not in read or flood["id"].encode() not in read[read.rindex(b"run.completed") :]:
            part = slow.recv(1 << 20)
            assert part, "the stream ended early"
            read = read[-4096:] + part


def test_a_batch_goes_out_in_pieces_and_no_more_of_it_is_encoded_than_is_on_its_way() -> None:
    text = "\u20ac" * 5_000  # 30 KB on the wire
    data = json.dumps({"text": text}, ensure_ascii=False)
    events = [
        Event(conversation=1, seq=seq, run=1, run_id="run_1", type=EventType.TOOL_PROGRESS, stored=data)
        for seq in range(1, 41)
    ]
    bodies: list[bytes] = []

    class Log:
        async def __aiter__(self) -> AsyncIterator[tuple[Event, ...]]:
            yield tuple(events)

        at_hand = False

        def ends_with(self, batch: tuple[Event, ...]) -> bool:
            return True

        def close(self) -> None: ...

    async def send(message: Any) -> None:
        bodies.append(message.get("body", b""))

    async def never() -> Any:
        await asyncio.get_running_loop().create_future()

    async def answer() -> None:
        await EventStreamResponse(Log(), closing=Closing(), heartbeat=60)({}, never, send)  # type: ignore[arg-type]

    asyncio.run(answer())
    assert b"".join(bodies).count(b"event: tool.progress\n") == 40
    assert max(map(len, bodies)) < 65536 + len(encode_event(events[0]))


def test_a_server_that_stops_ends_its_streams_at_once_and_whole(house: Any) -> None:
    client = house.api()
    run = house.submit(client, "wait")
    assert house.gate.wait_reached()
    conversation = f"/agents/support-agent/conversations/{run['conversation_id']}/events"
    told: list[list[Any]] = []

    def read(path: str) -> None:
        told.append(house.events(house.api(), path))  # a torn answer would raise

    readers = [threading.Thread(target=read, args=(path,)) for path in (conversation, f"/runs/{run['id']}/events")]
    for reader in readers:
        reader.start()
    with house.follow(client, conversation) as events:
        next(events)
        before = time.monotonic()
        house.door.closing.set()
        for _ in events:
            pass
    for reader in readers:
        reader.join(60)
    assert time.monotonic() - before < 50
    assert len(told) == 2
    ready = client.get("/health/ready")
    assert (ready.status_code, ready.json()["code"], ready.json()["detail"]) == (503, "not_ready", "the server stops")
    assert client.get("/health/live").status_code == 200


def test_a_conversation_is_followed_over_all_its_runs(house: Any) -> None:
    client = house.api()
    first = house.submit(client, "story", wait=10)
    path = f"/agents/support-agent/conversations/{first['conversation_id']}/events"
    with house.follow(client, path) as events:
        told = [next(events)]
        while told[-1].type != "run.completed":
            told.append(next(events))
        second = house.submit(client, "hello", conversation_id=first["conversation_id"])
        told.append(next(events))
        while told[-1].type != "run.completed":
            told.append(next(events))
    assert {event.data["run_id"] for event in told} == {first["id"], second["id"]}
    assert [event.id for event in told] == sorted({event.id for event in told})
    with house.follow(client, path, headers={"Last-Event-ID": str(told[-1].id)}) as events:
        third = house.submit(client, "hello", conversation_id=first["conversation_id"])
        assert next(events).data["run_id"] == third["id"]


def test_a_page_of_a_conversation_joins_its_stream_without_gap_or_double(house: Any) -> None:
    client = house.api()
    first = house.submit(client, "story", wait=10)
    house.submit(client, "wait", conversation_id=first["conversation_id"])
    assert house.gate.wait_reached()
    path = f"/agents/support-agent/conversations/{first['conversation_id']}"
    page = client.get(path).json()
    with house.follow(client, path + "/events", params={"after": str(page["last_event_id"])}) as events:
        house.gate.open()
        told = [next(events)]
        while told[-1].type != "run.completed":
            told.append(next(events))
    joined = [message["id"] for message in page["items"]]
    joined += [event.data["message"]["id"] for event in told if event.type == "message.completed"]
    whole = [message["id"] for message in client.get(path).json()["items"]]
    assert joined == whole


def test_data_is_one_line_of_ascii_that_means_the_same_text(shared_house: Any) -> None:
    client = shared_house.api()
    run = shared_house.submit(client, "story", wait=10)
    raw = client.get(f"/runs/{run['id']}/events").content
    assert raw.isascii()
    assert b"\\ud83d\\ude00" in raw
    lines = [line[6:] for line in raw.decode().split("\n") if line.startswith("data: ")]
    messages = [json.loads(line)["message"] for line in lines if '"message":' in line]
    assert messages[-1]["text"] == "It is shipped. \u00e4\u20ac\U0001f600"
