"""A connection to a provider serves the next request too, also when the end of a body comes after its last event."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from amoxi_py.models.anthropic import AnthropicModel
from amoxi_py.models.openai import OpenAIModel
from amoxi_py.ports.chat_model import ModelRequest, Reply, UserMessage

USAGE = {"input_tokens": 3, "output_tokens": 1}
MESSAGE = {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": [], "usage": USAGE}
ANTHROPIC = (
    {"type": "message_start", "message": MESSAGE},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": USAGE},
    {"type": "message_stop"},
)
STREAMS = {
    "openai": 'data: {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
    "anthropic": "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in ANTHROPIC),
}


class LateServer:
    """Sends the end of a body only when the client has had time to read its last event, and counts connections."""

    def __init__(self, stream: str) -> None:
        self._chunk = f"{len(stream):x}\r\n{stream}\r\n".encode()
        self.connections = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
                await reader.readexactly(int(length.partition(b":")[2]))
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                )
                writer.write(self._chunk)
                await writer.drain()
                await asyncio.sleep(0.01)
                writer.write(b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_a_connection_is_used_again_although_the_end_of_the_body_came_late(wire: str) -> None:
    async def ask_thrice() -> int:
        late = LateServer(STREAMS[wire])
        async with await asyncio.start_server(late.answer, "127.0.0.1", 0) as server:
            address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            model: Any = (
                OpenAIModel("x", "k", f"{address}/v1") if wire == "openai" else AnthropicModel("x", "k", address)
            )
            request = ModelRequest(instructions="", messages=(UserMessage(text="hi"),))
            for _ in range(3):
                items = [item async for item in model.stream(request)]
                assert isinstance(items[-1], Reply)
                assert items[-1].text == "Hi"
            await model.aclose()
        return late.connections

    assert asyncio.run(ask_thrice()) == 1
