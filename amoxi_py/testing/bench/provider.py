"""The played provider: `/v1/chat/completions` as OpenAI streams it, thousands at once, for next to no CPU.

    python -m amoxi_py.testing.bench.provider [--port 9100] [--ttft-ms 2000] [--tokens-per-s 200] [--tokens 8]

What each answer does next is due at an absolute time, so that a late timer delays no later token, and one timer serves
all of them: what is due within the same half millisecond is sent together.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import random
import time
from typing import Any, cast

import httptools
import msgspec

from amoxi_py.testing.bench.profile import Profile
from amoxi_py.testing.bench.program import end_with_parent, run_program, tell

_TOGETHER_S = 0.0005
_CREATED = 1700000000
_REASONS = {200: b"OK", 400: b"Bad Request", 404: b"Not Found", 429: b"Too Many Requests", 500: b"Server Error"}
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
_LONGEST_BODY = 16 << 20


class _Options(msgspec.Struct):
    include_usage: bool = False


class _Message(msgspec.Struct):
    role: str


class _ChatRequest(msgspec.Struct):
    model: str
    messages: list[_Message]
    stream: bool = False
    stream_options: _Options | None = None
    tools: list[msgspec.Raw] | None = None

    def tool_results(self) -> int:
        """Return how many results of tools there are since the person's last message."""
        count = 0
        for message in reversed(self.messages):
            if message.role == "user":
                break
            count += message.role == "tool"
        return count


_REQUESTS = msgspec.json.Decoder(_ChatRequest)


class Stats(msgspec.Struct, kw_only=True):
    """What the provider has seen since it was started or its statistics were reset; `cpu_s` is of its process."""

    requests: int = 0
    completed: int = 0
    in_flight: int = 0
    most_in_flight: int = 0
    streams: int = 0
    tool_calls: int = 0
    errors_injected: int = 0
    cuts_injected: int = 0
    clients_gone: int = 0
    bad_requests: int = 0
    cpu_s: float = 0.0


class Provider:
    """All connections of a provider, and the one timer for what they do next.

    Args:
        profile: How it answers; `POST /profile` replaces it and resets the statistics.
    """

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.stats = Stats()
        self._chance = random.Random(profile.seed)  # noqa: S311 - of errors on purpose
        self._loop = asyncio.get_running_loop()
        self._due: list[tuple[float, int, _Answer]] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def use(self, profile: Profile) -> None:
        """Answer from now on like this, and count anew what has been seen; answers that go on stay as they are."""
        self.profile = profile
        self._chance = random.Random(profile.seed)  # noqa: S311
        self.stats = Stats(in_flight=self.stats.in_flight, most_in_flight=self.stats.in_flight)

    def injected_error(self) -> int | None:
        """Return the status with which the next request fails, or None for one that does not."""
        if not self.profile.error_rate or self._chance.random() >= self.profile.error_rate:
            return None
        self.stats.errors_injected += 1
        if self.profile.error_status == "mix":
            return 500 if self.stats.errors_injected % 2 else 429
        return int(self.profile.error_status)

    def injected_cut(self) -> bool:
        """Whether the next stream is cut half way."""
        return bool(self.profile.cut_rate) and self._chance.random() < self.profile.cut_rate

    def begin(self, connection: _Connection, request: _ChatRequest) -> _Answer:
        """Let an answer begin when its first token is due."""
        answer = _Answer(self, connection, request)
        self.stats.streams += request.stream
        self.stats.tool_calls += answer.calls_tool
        self.stats.in_flight += 1
        self.stats.most_in_flight = max(self.stats.most_in_flight, self.stats.in_flight)
        wait = self.profile.ttft_ms / 1000.0 if request.stream else self.profile.turn_s
        self.at(time.perf_counter() + wait, answer)
        return answer

    def at(self, due: float, answer: _Answer) -> None:
        """Let an answer go on at a time of `time.perf_counter`."""
        self._count += 1
        heapq.heappush(self._due, (due, self._count, answer))
        if self._timer is None or due < self._timer_at:
            self._arm(due)

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = due
        self._timer = self._loop.call_later(max(0.0, due - time.perf_counter()), self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        until = time.perf_counter() + _TOGETHER_S
        while self._due and self._due[0][0] <= until:
            due, _, answer = heapq.heappop(self._due)
            answer.go_on(due)
        if self._timer is None and self._due:
            self._arm(self._due[0][0])


class _Answer:
    """One answer: its tokens, one after the other, then its end."""

    __slots__ = (
        "_connection",
        "_cut",
        "_head",
        "_number",
        "_profile",
        "_provider",
        "_request",
        "_sent",
        "_tokens",
        "_tool",
        "ended",
    )

    def __init__(self, provider: Provider, connection: _Connection, request: _ChatRequest) -> None:
        self._provider = provider
        self._profile = provider.profile
        self._connection = connection
        self._request = request
        self._cut = request.stream and provider.injected_cut()
        kind = "chat.completion.chunk" if request.stream else "chat.completion"
        model = msgspec.json.encode(request.model).decode()
        called = request.tool_results() if request.tools else len(self._profile.tools)
        self._tool = self._profile.tools[called] if called < len(self._profile.tools) else None
        self._tokens = self._profile.tokens if self._tool is None else 1
        self._head = (
            f'{{"id":"chatcmpl-{provider.stats.requests}","object":"{kind}","created":{_CREATED},"model":{model},'
        ).encode()
        self._number = provider.stats.requests
        self._sent = 0
        self.ended = False

    @property
    def calls_tool(self) -> bool:
        """Whether it is a call of a tool, and no words."""
        return self._tool is not None

    def go_on(self, due: float) -> None:
        """Do what is due now, and say when it goes on."""
        if self.ended:
            return
        if not self._request.stream:
            self._connection.answer(200, self._whole())
            self._end()
            return
        pieces = [] if self._sent else [_STREAM_HEAD]
        while not self.ended:
            if self._cut and self._sent >= (self._tokens + 1) // 2:
                self._provider.stats.cuts_injected += 1
                self._end(completed=False)
                self._connection.cut()
            elif self._sent == self._tokens:
                pieces.append(self._last())
                self._end()
            else:
                pieces.append(self._chunk(self._token()))
                self._sent += 1
                if self._profile.step_s:
                    self._provider.at(due + self._profile.step_s, self)
                    break
        self._connection.write(b"".join(pieces))

    def drop(self) -> None:
        """Let nothing more come: the client has gone."""
        if not self.ended:
            self._provider.stats.clients_gone += 1
            self._end(completed=False)

    def _end(self, *, completed: bool = True) -> None:
        self.ended = True
        self._provider.stats.in_flight -= 1
        self._provider.stats.completed += completed

    def _token(self) -> bytes:
        if self._tool is not None:
            return b'"choices":[{"index":0,"delta":%b,"finish_reason":null}]' % self._call()
        role = b'"role":"assistant",' if self._sent == 0 else b""
        return b'"choices":[{"index":0,"delta":{%b"content":"tok%d "},"finish_reason":null}]' % (role, self._sent)

    def _last(self) -> bytes:
        chunks = [self._chunk(b'"choices":[{"index":0,"delta":{},"finish_reason":"%b"}]' % self._reason())]
        if self._request.stream_options is not None and self._request.stream_options.include_usage:
            chunks.append(self._chunk(b'"choices":[],' + self._usage()))
        return b"".join((*chunks, b"e\r\ndata: [DONE]\n\n\r\n", b"0\r\n\r\n"))

    def _chunk(self, rest: bytes) -> bytes:
        event = b"data: %b%b}\n\n" % (self._head, rest)
        return b"%x\r\n%b\r\n" % (len(event), event)

    def _whole(self) -> bytes:
        text = " ".join(f"tok{n}" for n in range(self._profile.tokens)).encode()
        message = b'{"role":"assistant","content":"%b"}' % text if self._tool is None else self._call()
        choice = b'"choices":[{"index":0,"message":%b,"finish_reason":"%b"}],' % (message, self._reason())
        return b"%b%b%b}" % (self._head, choice, self._usage())

    def _call(self) -> bytes:
        function = msgspec.json.encode({"name": self._tool, "arguments": "{}"})
        call = b'{"index":0,"id":"call_%d","type":"function","function":%b}' % (self._number, function)
        return b'{"role":"assistant","content":null,"tool_calls":[%b]}' % call

    def _reason(self) -> bytes:
        return b"stop" if self._tool is None else b"tool_calls"

    def _usage(self) -> bytes:
        asked, said = 4 * len(self._request.messages), self._tokens
        numbers = (asked, said, asked + said)
        return b'"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}' % numbers


class _Connection(asyncio.Protocol):
    """One connection of a client; one request at a time, as clients of providers do."""

    def __init__(self, provider: Provider, open_ones: set[_Connection]) -> None:
        self._provider = provider
        self._open_ones = open_ones
        self._parser: Any = httptools.HttpRequestParser(self)
        self._url = b""
        self._body = bytearray()
        self._answer: _Answer | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are of a class of their own
        self._open_ones.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open_ones.discard(self)
        if self._answer is not None:
            self._answer.drop()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.answer(400, _error("this is no HTTP request"))
            self.cut()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, body: bytes) -> None:
        if len(self._body) + len(body) > _LONGEST_BODY:
            self.cut()
        else:
            self._body += body

    def on_message_complete(self) -> None:
        method, url, body = self._parser.get_method(), self._url.partition(b"?")[0], bytes(self._body)
        self._url = b""
        self._body.clear()
        if method == b"POST" and url.endswith(b"/chat/completions"):
            self._take(body)
        elif method == b"GET" and url == b"/stats":
            self._provider.stats.cpu_s = time.process_time()
            self.answer(200, msgspec.json.encode(self._provider.stats))
        elif method == b"POST" and url == b"/profile":
            self._set_profile(body)
        elif method == b"GET" and url.endswith(b"/models"):
            self.answer(200, b'{"object":"list","data":[{"id":"bench","object":"model","owned_by":"bench"}]}')
        else:
            self.answer(404, _error("the played provider has no such address"))

    def write(self, data: bytes) -> None:
        """Send bytes of an answer."""
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def answer(self, status: int, body: bytes, more: bytes = b"") -> None:
        """Send a whole answer in JSON; `more` are lines of its head."""
        head = b"HTTP/1.1 %d %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%b\r\n"
        self.write(head % (status, _REASONS[status], len(body), more) + body)

    def cut(self) -> None:
        """Close the connection, after what was sent so far."""
        self._transport.close()

    def _take(self, body: bytes) -> None:
        self._provider.stats.requests += 1
        if (status := self._provider.injected_error()) is not None:
            more = b"retry-after: %d\r\n" % self._provider.profile.retry_after_s if status == 429 else b""
            self.answer(status, _error("injected"), more)
            return
        try:
            request = _REQUESTS.decode(body)
        except msgspec.ValidationError as error:
            self._refuse(str(error))
        except msgspec.DecodeError:
            self._refuse("the body is no JSON")
        else:
            self._answer = self._provider.begin(self, request)

    def _refuse(self, why: str) -> None:
        self._provider.stats.bad_requests += 1
        self.answer(400, _error(why))

    def _set_profile(self, body: bytes) -> None:
        try:
            profile = msgspec.json.decode(body, type=Profile)
        except msgspec.MsgspecError as error:
            self.answer(400, _error(str(error)))
            return
        self._provider.use(profile)
        self.answer(200, b"{}")


def _error(text: str) -> bytes:
    return msgspec.json.encode({"error": {"message": text, "type": "bench", "code": None}})


async def serve_provider(profile: Profile, port: int, ready: asyncio.Future[int]) -> None:
    """Answer at a port of 127.0.0.1, 0 for any, until it is cancelled; `ready` gets the port."""
    provider = Provider(profile)
    connections: set[_Connection] = set()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(provider, connections), "127.0.0.1", port, backlog=4096)
    ready.set_result(server.sockets[0].getsockname()[1])
    try:
        await loop.create_future()
    finally:
        server.close()
        for connection in [*connections]:
            connection.cut()


def main() -> None:
    """Play a provider until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=9100, help="of 127.0.0.1; 0 for any that is free")
    parser.add_argument("--ttft-ms", type=float, default=2000.0, help="to the first token")
    parser.add_argument("--tokens-per-s", type=float, default=200.0, help="0 for all at once")
    parser.add_argument("--tokens", type=int, default=8, help="of each answer")
    parser.add_argument("--error-rate", type=float, default=0.0, help="share of requests that fail, 0 to 1")
    parser.add_argument("--error-status", choices=("429", "500", "mix"), default="500")
    parser.add_argument("--retry-after-s", type=int, default=1, help="what an answer of 429 says")
    parser.add_argument("--cut-rate", type=float, default=0.0, help="share of streams that are cut half way, 0 to 1")
    parser.add_argument("--seed", type=int, default=1, help="of the chance by which requests fail")
    parser.add_argument("--with-parent", action="store_true", help="end when the standard input is closed")
    options = vars(parser.parse_args())
    port, with_parent = options.pop("port"), options.pop("with_parent")
    try:
        profile = Profile(**options)
    except ValueError as error:
        parser.error(str(error))
    if with_parent:
        end_with_parent()
    run_program(_serve_until_interrupted(profile, port))


async def _serve_until_interrupted(profile: Profile, port: int) -> None:
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    ready.add_done_callback(lambda done: tell(b"listening on http://127.0.0.1:%d" % done.result()))
    await serve_provider(profile, port, ready)


if __name__ == "__main__":
    main()
