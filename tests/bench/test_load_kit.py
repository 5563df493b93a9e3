"""The played provider and the clients of a load, as the processes that they are, against each other."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from amoxi_py.testing.bench.figures import Window
from amoxi_py.testing.bench.profile import Profile
from amoxi_py.testing.bench.provider_process import PlayedProvider, played_provider
from amoxi_py.testing.bench.target import Load, Target

QUICK = Profile(ttft_ms=40, tokens_per_s=200, tokens=8)
CHAT = Target(
    path="/v1/chat/completions",
    body='{"model": "bench", "stream": true, "messages": [{"role": "user", "content": "{session} {n}"}]}',
    first='"content":"tok0',
    end="[DONE]",
)


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[PlayedProvider]:
    with played_provider(QUICK, tmp_path) as running:
        yield running


def play(url: str, target: Target = CHAT, **more: Any) -> list[Window]:
    """Let the clients' process play a load to its end."""
    port = urlsplit(url).port
    assert port is not None
    load = Load(**{"host": "127.0.0.1", "port": port, "target": target, "clients": 4, "window_s": 0.5, **more})
    process = subprocess.Popen(
        [sys.executable, "-m", "amoxi_py.testing.bench.clients"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(msgspec.json.encode(load) + b"\n")
    process.stdin.flush()
    lines = process.stdout.read().splitlines()  # to its end, with the standard input open
    process.stdin.close()
    process.stdout.close()
    assert process.wait() == 0
    windows = [msgspec.json.decode(line, type=Window) for line in lines if line.startswith(b"{")]
    order = [b"{" if line.startswith(b"{") else line for line in lines]
    told = [line for number in range(load.windows) for line in (b"boundary %d" % (number + 1), b"{")]
    assert order == [b"boundary 0", *told]  # what a server used until a boundary is known when the figures come
    return windows


def test_turns_take_what_the_profile_says_and_nobody_is_lost(provider: PlayedProvider) -> None:
    (window,) = play(provider.url, clients=20, ramp_s=0.1, warmup_s=0.2, window_s=1.0)
    seen = provider.stats()
    assert window.errors == {}
    assert window.ended > 20
    assert window.turn.count >= window.ended  # those that ended after the window are among them
    assert window.ttft.p50 is not None
    assert window.turn.p50 is not None
    assert window.ttft.p50 >= QUICK.ttft_ms - 1
    assert window.turn.p50 >= QUICK.turn_s * 1000 - 1
    assert seen["requests"] == seen["completed"] == seen["streams"]
    assert seen["in_flight"] == 0
    assert 0 < seen["most_in_flight"] <= 20


def test_windows_follow_each_other_and_each_counts_its_own(provider: PlayedProvider) -> None:
    windows = play(provider.url, window_s=0.4, windows=3)
    assert [window.number for window in windows] == [0, 1, 2]
    assert all(window.ended > 0 for window in windows)
    most = 3 * 4 * 0.4 / QUICK.turn_s + 3 * 4
    assert sum(window.ended for window in windows) <= most


def test_a_turn_that_ends_after_the_window_has_its_time_told_and_is_not_counted(provider: PlayedProvider) -> None:
    provider.answer_like(msgspec.structs.replace(QUICK, ttft_ms=1500))
    (window,) = play(provider.url, clients=3, window_s=0.2)
    assert window.ended == 0
    assert window.turn.count == 3


def test_a_turn_of_the_provider_takes_less_than_half_a_millisecond_of_cpu(provider: PlayedProvider) -> None:
    provider.answer_like(msgspec.structs.replace(QUICK, ttft_ms=700))
    before = provider.stats()["cpu_s"]
    play(provider.url, clients=500, ramp_s=0.4, window_s=2.0)
    seen = provider.stats()
    assert seen["most_in_flight"] > 250
    assert (seen["cpu_s"] - before) / seen["completed"] < 0.0005


def test_injected_errors_are_told_by_their_kind(provider: PlayedProvider) -> None:
    provider.answer_like(msgspec.structs.replace(QUICK, error_rate=1.0, error_status="500"))
    (window,) = play(provider.url)
    assert set(window.errors) == {"HTTP 500"}
    assert "injected" in window.samples["HTTP 500"]
    assert window.ended == 0
    assert window.turn.p95 is None
    assert provider.stats()["errors_injected"] == provider.stats()["requests"]


def test_what_fails_in_the_warm_up_is_told_too(provider: PlayedProvider) -> None:
    provider.answer_like(msgspec.structs.replace(QUICK, error_rate=1.0))
    (window,) = play(provider.url, clients=2, warmup_s=1.5, window_s=0.05)
    assert window.errors["HTTP 500"] == provider.stats()["requests"]


def test_a_cut_stream_is_an_error_and_no_turn(provider: PlayedProvider) -> None:
    provider.answer_like(msgspec.structs.replace(QUICK, cut_rate=1.0))
    (window,) = play(provider.url)
    assert set(window.errors) == {"cut stream"}
    assert window.ended == 0


def test_refusals_are_no_errors_and_their_wait_is_kept(provider: PlayedProvider) -> None:
    refusing = msgspec.structs.replace(QUICK, error_rate=1.0, error_status="429", retry_after_s=30)
    provider.answer_like(refusing)
    (window,) = play(provider.url, clients=3, longest_wait_s=60, window_s=0.5)
    assert window.errors == {}
    assert window.refused.count == 3  # each client waits as long as it was told
    assert window.refused_without_wait == 0
    provider.answer_like(refusing)
    (window,) = play(provider.url, clients=3, longest_wait_s=0.02, window_s=1.0)
    assert window.refused.count > 3


def test_an_answer_without_the_end_is_an_error_whose_last_words_are_kept(provider: PlayedProvider) -> None:
    (window,) = play(provider.url, msgspec.structs.replace(CHAT, end="run.completed"), clients=2)
    assert set(window.errors) == {"answer without an end"}
    assert window.samples["answer without an end"].endswith("data: [DONE]\n\n")
    assert window.ended == 0


def test_a_turn_that_takes_too_long_is_given_up(provider: PlayedProvider) -> None:
    provider.answer_like(msgspec.structs.replace(QUICK, ttft_ms=60_000))
    (window,) = play(provider.url, clients=2, turn_timeout_s=0.3, window_s=0.5)
    assert set(window.errors) == {"timeout"}


def test_a_server_that_is_not_there_is_an_error(provider: PlayedProvider) -> None:
    (window,) = play("http://127.0.0.1:1", clients=2, window_s=0.3)
    assert set(window.errors) == {"no connection"}


def test_the_same_seed_makes_the_same_errors_and_a_mix_takes_turns(provider: PlayedProvider) -> None:
    def statuses() -> list[int]:
        provider.answer_like(Profile(ttft_ms=0, tokens_per_s=0, error_rate=0.5, error_status="mix", seed=7))
        return [ask(provider.url, stream=False)[0] for _ in range(20)]

    first = statuses()
    assert set(first) == {200, 429, 500}
    assert statuses() == first


def test_what_is_no_chat_request_is_refused_with_the_reason(provider: PlayedProvider) -> None:
    status, told = ask(provider.url, body=b'{"model": "bench"}')
    assert status == 400
    assert "messages" in told
    assert ask(provider.url, body=b"{")[0] == 400
    assert provider.stats()["bad_requests"] == 2


def test_an_answer_without_a_stream_is_whole(provider: PlayedProvider) -> None:
    status, told = ask(provider.url, stream=False)
    answer = json.loads(told)
    assert status == 200
    assert answer["choices"][0]["message"]["content"] == " ".join(f"tok{n}" for n in range(8))
    assert answer["usage"]["completion_tokens"] == 8


def test_tools_are_called_in_turn_before_the_words_by_requests_that_offer_them(provider: PlayedProvider) -> None:
    provider.answer_like(Profile(ttft_ms=0, tokens_per_s=0, tokens=2, tools=("first", "second")))
    user, result = {"role": "user", "content": "go"}, {"role": "tool", "tool_call_id": "c", "content": "done"}

    def asked(*messages: dict[str, str], tools: bool = True) -> tuple[str, Any]:
        body = {"model": "bench", "messages": messages, **({"tools": [{"type": "function"}]} if tools else {})}
        choice = json.loads(ask(provider.url, json.dumps(body).encode())[1])["choices"][0]
        calls = choice["message"].get("tool_calls")
        return choice["finish_reason"], calls[0]["function"] if calls else choice["message"]["content"]

    assert asked(user) == ("tool_calls", {"name": "first", "arguments": "{}"})
    assert asked(user, result) == ("tool_calls", {"name": "second", "arguments": "{}"})
    assert asked(user, result, result) == ("stop", "tok0 tok1")
    assert asked(user, result, result, user) == ("tool_calls", {"name": "first", "arguments": "{}"})
    assert asked(user, tools=False) == ("stop", "tok0 tok1")


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [({"tokens": 0}, "'tokens'"), ({"error_rate": 1.5}, "'error_rate'"), ({"ttft_ms": -1.0}, "0 or more")],
)
def test_a_profile_that_cannot_be_is_refused(numbers: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Profile(**numbers)


def test_a_conversation_keeps_the_id_and_the_cookie_that_the_server_gave() -> None:
    target = Target(
        path="/chat",
        opening_body='{"opening": true}',
        body='{"conversation": "{session}", "n": {n}}',
        session_field="conversation_id",
        first="word",
        end="over",
    )
    with recording_server() as (url, asked):
        (window,) = play(url, target, clients=2, window_s=1.0, turns_each=3)
    assert window.errors == {}
    by_visitor: dict[str, list[dict[str, Any]]] = {}
    for cookie, body in asked:
        by_visitor.setdefault(cookie, []).append(body)
    assert len(by_visitor) == 2  # each has kept its cookie from the first answer on
    for opening, second, third, anew, fifth, *_ in by_visitor.values():
        assert opening == anew == {"opening": True}  # after three turns a new conversation begins
        assert (second["n"], third["n"], fifth["n"]) == (1, 2, 1)
        assert second["conversation"] == third["conversation"] != fifth["conversation"]


@contextmanager
def recording_server() -> Iterator[tuple[str, list[tuple[str, dict[str, Any]]]]]:
    """A chat server that gives each visitor a cookie and each conversation an id, and records what it is asked."""
    asked: list[tuple[str, dict[str, Any]]] = []
    lock = threading.Lock()

    class Chat(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            cookie = self.headers["Cookie"]
            with lock:
                number = len(asked)
                asked.append((cookie or f"visitor={number}", body))
            name = body.get("conversation") or f"conv-{number}"
            answer = f'data: {{"conversation_id":"{name}"}}\n\ndata: word\n\ndata: over\n\n'.encode()
            self.send_response(200)
            if cookie is None:
                self.send_header("Set-Cookie", f"visitor={number}; HttpOnly; Path=/")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Chat)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def ask(url: str, body: bytes | None = None, *, stream: bool = True) -> tuple[int, str]:
    """Ask a provider once; return the status and the text of the answer."""
    import urllib.error
    import urllib.request

    asked = {"model": "bench", "stream": stream, "messages": [{"role": "user", "content": "hello"}]}
    request = urllib.request.Request(f"{url}/v1/chat/completions", body or json.dumps(asked).encode())
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
