"""Large files of a conversation are encoded once, beside the event loop, and within a bound for all runs."""

from __future__ import annotations

import asyncio
import base64
import threading
from typing import Any

import pytest

from amoxi_py.models import AnthropicModel, OpenAIModel, encoded_files
from amoxi_py.models.encoded_files import LARGE, EncodedFiles
from amoxi_py.ports.chat_model import ModelRequest, Reply, SentFile, UserMessage
from amoxi_py.testing import StrictModelServer

PNG = b"\x89PNG\r\n\x1a\n"


def picture(number: int, size: int = LARGE) -> SentFile:
    data = PNG + bytes([number]) * size
    return SentFile(id=f"file_{number}", name="a.png", media_type="image/png", data=data)


def asked_with(*files: SentFile) -> ModelRequest:
    notes = tuple(f"[file {file.id}: a.png]" for file in files)
    return ModelRequest(instructions="", messages=(UserMessage(text="Look", notes=notes, files=files),))


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_a_large_picture_is_encoded_once_and_in_a_thread(wire: str, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    def encode(data: bytes) -> bytes:
        threads.append(threading.current_thread())
        return base64.b64encode(data)

    monkeypatch.setattr(encoded_files, "b64encode", encode)

    async def ask_twice(model: Any) -> None:
        for _ in range(2):
            items = [item async for item in model.stream(asked_with(picture(1 if wire == "openai" else 2)))]
            assert isinstance(items[-1], Reply)
        await model.aclose()

    with StrictModelServer(["Seen.", "Seen."]) as server:
        address = server.url if wire == "openai" else server.anthropic_url
        asyncio.run(ask_twice((OpenAIModel if wire == "openai" else AnthropicModel)("m", "key", address)))
        assert server.refused == []
        files = [file for request in server.requests for file in request.messages[0].files]  # type: ignore[union-attr]
        assert [len(file.data) for file in files] == [LARGE + 8] * 2
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


def test_what_was_used_longest_ago_is_forgotten_when_there_is_too_much() -> None:
    files = [picture(number).data for number in range(4)]
    one = len(files[0]) + len(base64.b64encode(files[0]))
    encoded = EncodedFiles(most=3 * one)
    texts = [encoded.of(data) for data in files[:3]]
    assert encoded.of(files[0]) is texts[0]
    encoded.of(files[3])
    assert encoded.of(files[0]) is texts[0]
    assert encoded.of(files[1]) is not texts[1]
    assert encoded.of(files[1]) == texts[1]
    small = picture(9, 10).data
    assert encoded.of(small) is not encoded.of(small)
