"""The strict model server: real HTTP, the same scripts on two wires, and 400 for what a provider refuses."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from amoxi_py.domain.usage import Usage
from amoxi_py.testing import Gate, StrictModelServer, broken, call, fail, pause, raw_call, reply, thinking
from amoxi_py.testing.strict_server import read_script

HI = [{"role": "user", "content": "Hi"}]


def connect(url: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)


def post(connection: http.client.HTTPConnection, body: Any) -> http.client.HTTPResponse:
    data = body if isinstance(body, bytes) else json.dumps({"model": "m", **body}).encode()
    connection.request("POST", "/v1/chat/completions", data, {"content-type": "application/json"})
    return connection.getresponse()


def events(response: http.client.HTTPResponse) -> list[Any]:
    lines = [line[6:] for line in response.read().split(b"\n") if line.startswith(b"data: ")]
    return [None if line == b"[DONE]" else json.loads(line) for line in lines]


def test_it_answers_whole_and_streamed_on_one_connection_that_stays_open() -> None:
    with StrictModelServer(["Hello."]) as server:
        connection = connect(server.url)
        whole = json.loads(post(connection, {"messages": HI}).read())
        streamed = events(post(connection, {"messages": HI, "stream": True}))
        connection.close()
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": "Hello."}
    assert whole["usage"] == {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    assert [chunk["choices"][0]["delta"].get("content") for chunk in streamed[:-2]] == ["", "Hello."]
    assert streamed[-2]["choices"][0]["finish_reason"] == "stop"
    assert streamed[-1] is None
    assert len(server.requests) == 2


def test_usage_comes_in_the_stream_when_it_is_asked_for() -> None:
    with StrictModelServer(["Hello."]) as server:
        asked = {"messages": HI, "stream": True, "stream_options": {"include_usage": True}}
        connection = connect(server.url)
        streamed = events(post(connection, asked))
        connection.close()
    assert streamed[-2]["usage"]["total_tokens"] == 15


def test_calls_are_streamed_in_pieces_that_add_up() -> None:
    with StrictModelServer([[call("a", x=1), raw_call("b", '{"y": ', "same")]]) as server:
        connection = connect(server.url)
        streamed = events(post(connection, {"messages": HI, "stream": True}))
        connection.close()
    pieces = [chunk["choices"][0]["delta"]["tool_calls"][0] for chunk in streamed[1:-2]]
    assert [piece["id"] for piece in pieces if "id" in piece] == ["call_1", "same"]
    told = {index: "".join(p["function"]["arguments"] for p in pieces if p["index"] == index) for index in (0, 1)}
    assert told == {0: '{"x": 1}', 1: '{"y": '}
    assert streamed[-2]["choices"][0]["finish_reason"] == "tool_calls"


BAD_CALL = {
    "role": "assistant",
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "t", "arguments": "{"}}],
}
ANSWER = {"role": "tool", "tool_call_id": "c1", "content": "ok"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"model": "m", "messages": [NaN]}', "not strict JSON"),
        (b"\xff", "UTF-8"),
        ({"messages": [*HI, BAD_CALL, ANSWER]}, "not the text of a JSON object"),
        ({"messages": [*HI, ANSWER]}, "does not call"),
        ({"messages": []}, "'messages'"),
    ],
)
def test_what_a_provider_refuses_is_answered_with_400_and_recorded(body: Any, said: str) -> None:
    with StrictModelServer(["Hello."]) as server:
        connection = connect(server.url)
        response = post(connection, body)
        told = json.loads(response.read())
        connection.close()
    assert response.status == 400
    assert said in told["error"]["message"]
    assert told["error"]["type"] == "invalid_request_error"
    assert any(said in problem for problem in server.refused)
    assert (len(server.bodies), server.requests) == (1, [])


def test_a_body_above_the_limit_is_refused_as_too_long_for_the_context() -> None:
    with StrictModelServer(["Hello."], max_body=1000) as server:
        connection = connect(server.url)
        response = post(connection, {"messages": [{"role": "user", "content": "x" * 2000}]})
        code = json.loads(response.read())["error"]["code"]
        connection.close()
    assert (response.status, code) == (400, "context_length_exceeded")
    assert "too long" in server.refused[0]


def test_a_scripted_status_has_its_wait_and_its_reason() -> None:
    with StrictModelServer([fail(429, text="slow down", reason="rate_limit_exceeded", retry_after=2)]) as server:
        connection = connect(server.url)
        response = post(connection, {"messages": HI})
        error = json.loads(response.read())["error"]
        connection.close()
    assert (response.status, response.headers["retry-after"]) == (429, "2")
    assert (error["message"], error["code"]) == ("slow down", "rate_limit_exceeded")


def post_messages(connection: http.client.HTTPConnection, body: Any, **headers: str) -> http.client.HTTPResponse:
    data = json.dumps({"model": "m", "max_tokens": 9, **body}).encode()
    sent = {"content-type": "application/json", "anthropic-version": "2026-10-21", "x-api-key": "sk-1", **headers}
    connection.request("POST", "/v1/messages", data, sent)
    return connection.getresponse()


def test_the_same_script_is_played_in_the_form_of_the_messages_api_too() -> None:
    used = Usage(requests=1, input_tokens=100, output_tokens=7, cached_tokens=60, written_tokens=30)
    with StrictModelServer([reply("Hel", "lo.", call("t", x=1), usage=used)]) as server:
        connection = connect(server.anthropic_url)
        whole = json.loads(post_messages(connection, {"messages": HI}).read())
        streamed = events(post_messages(connection, {"messages": HI, "stream": True}))
        other = json.loads(post(connection, {"messages": HI}).read())
        connection.close()
    counts = {"input_tokens": 10, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 30, "output_tokens": 7}
    assert whole["content"] == [
        {"type": "text", "text": "Hello."},
        {"type": "tool_use", "id": "toolu_1", "name": "t", "input": {"x": 1}},
    ]
    assert (whole["stop_reason"], whole["usage"]) == ("tool_use", counts)
    assert [event["type"] for event in streamed] == [
        *("message_start", "ping"),
        *("content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"),
        *("content_block_start", *("content_block_delta",) * 3, "content_block_stop"),
        *("message_delta", "message_stop"),
    ]
    assert streamed[-2] == {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 7},
    }
    assert other["choices"][0]["message"]["content"] == "Hello."
    assert [request.messages for request in server.requests] == [server.requests[0].messages] * 3
    assert len(server.bodies) == 3


def test_a_refusal_has_the_form_of_the_api_that_was_asked() -> None:
    with StrictModelServer(
        [fail(429, text="slow down", reason="rate_limit_exceeded", retry_after=2)], max_body=500
    ) as s:
        connection = connect(s.anthropic_url)
        slow = post_messages(connection, {"messages": HI})
        told = [json.loads(slow.read())]
        for body, headers in (
            ({"messages": HI, "temperature": 1}, {}),
            ({"messages": [{"role": "user", "content": "x" * 600}]}, {}),
            ({"messages": HI}, {"x-api-key": ""}),
        ):
            told.append(json.loads(post_messages(connection, body, **headers).read()))
        connection.close()
    assert (slow.status, slow.headers["retry-after"]) == (429, "2")
    assert [answer["type"] for answer in told] == ["error"] * 4
    errors = [(answer["error"]["type"], answer["error"]["message"]) for answer in told]
    assert errors[0] == ("rate_limit_error", "slow down")
    assert errors[1] == ("invalid_request_error", "temperature: Extra inputs are not permitted")
    assert errors[2] == ("invalid_request_error", f"prompt is too long: {s.refused[1]}")
    assert errors[3][0] == "authentication_error"
    assert s.keys == ["sk-1", "sk-1", "sk-1", ""]


def test_garbage_in_place_of_a_reply_is_sent_as_the_script_says() -> None:
    script = {name: [broken("a", ending=name)] for name in ("html", "empty_body", "wrong_type", "bad_json")}  # type: ignore[arg-type] # texts that are endings
    with StrictModelServer(script) as server:
        connection = connect(server.url)
        found = []
        for name in script:
            response = post(connection, {"messages": [{"role": "user", "content": name}], "stream": True})
            found.append((response.headers["content-type"].partition(";")[0], response.read()))
        connection.close()
    assert [kind for kind, _ in found] == ["text/html", "text/event-stream", "text/plain", "text/event-stream"]
    assert found[0][1].startswith(b"<!doctype html>")
    assert found[1][1] == b""
    assert found[2][1].endswith(b"data: [DONE]\n\n")
    assert b'data: {"choices": [{"delta\n\n' in found[3][1]


def test_a_cut_reply_ends_the_connection_in_the_middle() -> None:
    with StrictModelServer([broken("half")]) as server:
        connection = connect(server.url)
        response = post(connection, {"messages": HI, "stream": True})
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            response.read()
        connection.close()


def test_an_unknown_route_is_404() -> None:
    with StrictModelServer(["Hello."]) as server:
        connection = connect(server.url)
        connection.request("GET", "/v1/models")
        response = connection.getresponse()
        response.read()
        connection.close()
    assert response.status == 404


def test_a_gate_holds_one_reply_and_lets_others_pass() -> None:
    gate = Gate()
    with StrictModelServer({"Wait": [reply("one", gate, "two")], "*": ["Hello."]}) as server:
        held: list[Any] = []

        def ask() -> None:
            connection = connect(server.url)
            held.extend(events(post(connection, {"messages": [{"role": "user", "content": "Wait"}], "stream": True})))
            connection.close()

        thread = threading.Thread(target=ask)
        thread.start()
        assert gate.wait_reached()
        connection = connect(server.url)
        assert json.loads(post(connection, {"messages": HI}).read())["choices"][0]["message"]["content"] == "Hello."
        connection.close()
        assert held == []
        gate.open()
        thread.join(60)
    assert [chunk["choices"][0]["delta"].get("content") for chunk in held[1:3]] == ["one", "two"]


def test_a_client_that_leaves_in_the_middle_is_counted() -> None:
    gate = Gate()
    with StrictModelServer([reply("one", gate, "two")]) as server:
        connection = connect(server.url)
        response = post(connection, {"messages": HI, "stream": True})
        assert gate.wait_reached()
        response.close()
        connection.close()
        end = time.monotonic() + 60
        while server.left == 0 and time.monotonic() < end:
            time.sleep(0.01)
        assert server.left == 1


def test_stopping_ends_replies_that_are_held_and_a_port_can_be_taken_again() -> None:
    gate = Gate()
    with StrictModelServer([reply("one", gate)]) as server:
        connection = connect(server.url)
        post(connection, {"messages": HI, "stream": True})
        assert gate.wait_reached()
        port = urlsplit(server.url).port
    connection.close()
    assert port is not None
    with StrictModelServer(["Again."], port=port) as again:
        assert again.url == server.url


def test_a_port_that_is_taken_fails_at_the_start() -> None:
    with StrictModelServer(["Hello."]) as server:
        port = urlsplit(server.url).port
        assert port is not None
        with pytest.raises(OSError, match="address"), StrictModelServer(["Hello."], port=port):
            pass


def test_a_script_can_be_read_from_json() -> None:
    script = read_script(
        [
            "Hello.",
            ["I look.", {"call": "a", "arguments": {"x": 1}}, {"call": "b", "arguments": "{"}, {"pause": 0.5}],
            {"parts": ["half"], "ending": "cut"},
            {"fail": 503, "retry_after": 1},
            [{"thinking": "Hm."}, {"thinking": "So.", "redacted": True}, {"call": "a", "arguments": {}, "id": "x"}],
            {"slowly": "one two", "seconds": 0.5},
        ]
    )
    assert script == [
        reply("Hello."),
        reply("I look.", call("a", x=1), raw_call("b", "{"), pause(0.5)),
        broken("half"),
        fail(503, retry_after=1),
        reply(thinking("Hm."), thinking("So.", redacted=True), raw_call("a", "{}", "x")),
        reply(pause(0.5), "one ", pause(0.5), "two"),
    ]
    assert read_script({"*": ["Hello."]}) == {"*": [reply("Hello.")]}
    with pytest.raises(ValueError, match="no part"):
        read_script([42])


def test_the_command_plays_a_file_tells_its_address_and_what_it_refuses(tmp_path: Path) -> None:
    gate, file = tmp_path / "go", tmp_path / "script.json"
    file.write_text(json.dumps({"*": [["one", {"gate_file": str(gate)}, "two"]]}), "utf-8")
    command = [sys.executable, "-W", "error", "-m", "amoxi_py.testing.strict_server", "--script", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            connection = connect(process.stdout.readline().strip())
            other = connect(process.stdout.readline().strip())
            assert post_messages(other, {"messages": HI, "effort": "low"}).read()
            other.close()
            assert post(connection, {"messages": []}).read()
            gate.touch()
            told = json.loads(post(connection, {"messages": HI}).read())
            connection.close()
        finally:
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=60)
    assert told["choices"][0]["message"]["content"] == "onetwo"
    assert said.splitlines() == [
        "refused: effort: Extra inputs are not permitted",
        "refused: 'messages' must be a list with at least one message",
    ]
