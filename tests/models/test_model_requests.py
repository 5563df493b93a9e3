"""What both adapters keep to whatever is asked: their own address and headers, an end, and what failures cost."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.openai import OpenAIProvider

from amoxi_py.domain.usage import Usage
from amoxi_py.errors import ConfigError, ModelFailed
from amoxi_py.models.lookup import resolve_model
from amoxi_py.models.pydantic_ai import PydanticAIModel
from amoxi_py.ports.chat_model import ModelRequest, Reply, UserMessage
from amoxi_py.testing import Gate, broken, fail, reply
from certificates import certificate

ASK = ModelRequest(instructions="", messages=(UserMessage(text="Where?"),))
FOREIGN = {
    "OPENAI_ORG_ID": "org-of-the-company",
    "OPENAI_PROJECT_ID": "proj-of-the-company",
    "OPENAI_ADMIN_KEY": "sk-admin-of-the-company",
    "OPENAI_CUSTOM_HEADERS": "x-of-the-company: yes",
    "ANTHROPIC_CUSTOM_HEADERS": "x-of-the-company: yes\nauthorization: Bearer of-the-company",
    "ANTHROPIC_AUTH_TOKEN": "token-of-the-company",
}


@asynccontextmanager
async def listening(
    talk: Callable[[bytes, asyncio.StreamWriter], Any], host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Give the address of a server that answers each connection by `talk`, with the head of its request."""
    tasks: set[asyncio.Task[None]] = set()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(await reader.readuntil(b"\r\n\r\n"), writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(take(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, host, 0, ssl=tls)
    try:
        yield f"http{'s' if tls else ''}://{host}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def refusing() -> AsyncIterator[tuple[str, list[str]]]:
    """Give the address of a server that refuses all, and the heads of its requests in small letters."""
    heads: list[str] = []

    async def refuse(head: bytes, writer: asyncio.StreamWriter) -> None:
        heads.append(head.decode().lower())
        writer.write(b"HTTP/1.1 400 Bad\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        await writer.drain()

    async with listening(refuse) as url:
        yield url, heads


async def failures(stage: Any, *models: Any) -> list[Any]:
    """Return what a request to each model fails with."""
    items = [await stage.collect(model, ASK) for model in models]
    for model in models:
        await model.aclose()
    return [found[-1] for found in items]


def asked(stage: Any, wire: str, talk: Any, **more: Any) -> tuple[Any, float]:
    """Return the last that comes of a request to such a server, and the seconds that it took."""

    async def ask() -> Any:
        async with listening(talk) as url:
            model = stage.model(wire, url=url, **more)
            began = time.monotonic()
            last: Any = None
            try:
                async for item in model.stream(ASK):
                    last = item
            except ModelFailed as failed:
                last = failed
            await model.aclose()
            return last, time.monotonic() - began

    return stage.run(ask())  # type: ignore[no-any-return] # a runner's own types


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


def test_nothing_of_the_process_goes_to_a_provider_beside_the_key_that_was_given(
    stage: Any, wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in FOREIGN.items():
        monkeypatch.setenv(name, text)

    async def ask() -> tuple[list[Any], list[str]]:
        async with refusing() as (url, told):
            return await failures(stage, stage.model(wire, url=url, key="sk-of-the-tenant")), told

    (failed,), heads = stage.run(ask())
    assert failed.code == "model_refused"
    assert "sk-of-the-tenant" in heads[0]
    assert "of-the-company" not in heads[0]


def test_an_address_in_the_environment_is_only_for_models_by_name(
    stage: Any, wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = wire.upper()
    own = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}[wire]
    for there in ("http://127.0.0.1:9/v1", "", " "):
        monkeypatch.setenv(f"{provider}_BASE_URL", there)
        model = type(stage.model(wire))("m", "sk-of-the-tenant")
        assert own in model.identity
        named: Any = resolve_model(f"{wire}:m", {f"{provider}_API_KEY": "k", f"{provider}_BASE_URL": there})
        assert (there.strip() or own) in named.identity


def test_the_organization_and_the_project_of_a_named_model_are_the_environments_and_else_what_is_given(
    stage: Any,
) -> None:
    async def heads() -> list[str]:
        async with refusing() as (url, told):
            keys = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": url}
            named: Any = resolve_model("openai:m", {**keys, "OPENAI_ORG_ID": "org-1", "OPENAI_PROJECT_ID": " "})
            made = stage.model("openai", url=url, organization="org-2", project="proj-2")
            await failures(stage, named, made)
            return told

    first, second = stage.run(heads())
    assert "openai-organization: org-1\r" in first
    assert "openai-project" not in first
    assert "openai-organization: org-2\r\nopenai-project: proj-2\r" in second


def test_the_key_and_the_version_are_sent_as_the_providers_own_sdk_sends_them(stage: Any, wire: str) -> None:
    async def ask_by_sdk(url: str) -> None:
        messages: Any = [{"role": "user", "content": "Where?"}]
        with suppress(openai.APIStatusError, anthropic.APIStatusError):
            if wire == "openai":
                async with openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=0) as client:
                    await client.chat.completions.create(model="m", messages=messages, stream=True)
            else:
                async with anthropic.AsyncAnthropic(api_key="k", base_url=url, max_retries=0) as claude:
                    await claude.messages.create(model="m", messages=messages, max_tokens=5, stream=True)

    async def heads() -> list[str]:
        async with refusing() as (url, told):
            await ask_by_sdk(f"{url}/x")
            await failures(stage, stage.model(wire, url=f"{url}/x/", key="k"))
            return told

    theirs, ours = ([*head.split("\r\n")] for head in stage.run(heads()))
    assert theirs[0] == ours[0]
    common = ("authorization:", "x-api-key:", "anthropic-version:", "content-type:", "accept:")
    same = [sorted(line for line in head if line.startswith(common)) for head in (theirs, ours)]
    assert same[0] == same[1]
    assert len(same[1]) >= 3


def test_a_header_of_the_options_takes_the_place_of_ours_however_it_is_written(stage: Any, wire: str) -> None:
    async def head() -> str:
        async with refusing() as (url, told):
            await failures(stage, stage.model(wire, url=url, options={"extra_headers": {"AUTHORIZATION": "Other k"}}))
            return told[0]

    lines = stage.run(head()).split("\r\n")
    assert [line for line in lines if line.startswith("authorization:")] == ["authorization: other k"]


def test_a_key_does_not_follow_a_redirect_and_the_log_says_where_it_goes(stage: Any, wire: str) -> None:
    async def redirect(head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 307 T\r\nlocation: https://elsewhere.example/v1\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()

    failed, _ = asked(stage, wire, redirect)
    assert (failed.code, failed.retryable) == ("model_refused", False)
    assert "307: it redirects to https://elsewhere.example/v1" in str(failed)


@pytest.mark.parametrize("excepted", [False, True])
def test_the_proxy_of_the_environment_is_used_but_for_the_hosts_that_are_excepted(
    stage: Any, wire: str, excepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def head() -> tuple[str, list[Any]]:
        async with refusing() as (url, told):
            monkeypatch.setenv("http_proxy", url)
            monkeypatch.setenv("no_proxy", "127.0.0.1" if excepted else "other.localhost")
            address = url if excepted else "http://models.localhost:1"
            failed = await failures(stage, stage.model(wire, url=f"{address}/v1?api-version=2"))
            return told[0], failed

    first, failed = stage.run(head())
    assert first.startswith("post /v1/" if excepted else "post http://models.localhost:1/v1/")
    assert "?api-version=2 http/1.1" in first
    assert failed[0].code == "model_refused"


@pytest.mark.parametrize("prefix", ["", "ann:p%40ss@", "http://ann:p%40ss@"])
def test_a_proxy_may_be_named_without_http_and_with_a_password(
    stage: Any, wire: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def head() -> str:
        async with refusing() as (url, told):
            monkeypatch.setenv("http_proxy", prefix + url.removeprefix("http://"))
            await failures(stage, stage.model(wire, url="http://models.localhost:1"))
            return told[0]

    told = stage.run(head())
    assert told.startswith("post http://models.localhost:1/")
    shown = f"proxy-authorization: basic {base64.b64encode(b'ann:p@ss').decode().lower()}\r"
    assert (shown in told) == ("ann" in prefix)


@pytest.mark.parametrize("excepted", ["::1", "[::1]"])
def test_an_ipv6_host_is_excepted_from_the_proxy_however_it_is_written(
    stage: Any, wire: str, excepted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def heads() -> list[str]:
        async with refusing() as (url, told):
            monkeypatch.setenv("http_proxy", url)
            for name in ("::2", excepted):
                monkeypatch.setenv("no_proxy", name)
                await failures(stage, stage.model(wire, url="http://[::1]:1"))
            return told

    assert len(stage.run(heads())) == 1, "the first time only"


def test_the_log_has_no_password_of_a_proxy_and_no_query_of_an_address(
    stage: Any, wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def garble(head: bytes, writer: asyncio.StreamWriter) -> None:
        of_proxy = head.startswith(b"CONNECT")
        writer.write(b"HTTP/1.1 407 Who\r\ncontent-length: 0\r\n\r\n" if of_proxy else b"what?\r\n\r\n")
        await writer.drain()

    async def told() -> list[Any]:
        async with listening(garble) as url:
            monkeypatch.setenv("https_proxy", url.replace("//", "//ann:very-secret@"))
            addresses = ("https://models.localhost", f"{url}/?key=very-secret")
            return await failures(stage, *(stage.model(wire, url=address) for address in addresses))

    refused, garbled = map(str, stage.run(told()))
    assert "407" in refused
    assert "Bad status line" in garbled
    assert "very-secret" not in refused + garbled


def test_a_certificate_that_is_not_trusted_is_not_a_fault_of_the_request(stage: Any, wire: str, tmp_path: Path) -> None:
    tls, _ = certificate(tmp_path, "localhost")

    async def ask() -> list[Any]:
        async with listening(lambda head, writer: writer.drain(), "localhost", tls) as url:
            return await failures(stage, stage.model(wire, url=url))

    (failed,) = stage.run(ask())
    assert (failed.code, failed.retryable) == ("model_unavailable", True)
    assert "CERTIFICATE_VERIFY_FAILED" in str(failed)


def test_a_request_of_many_megabytes_arrives_whole(stage: Any, wire: str) -> None:
    long = "é" * 1_500_000
    stage.playing[:] = ["Hi."]
    items = stage.run(
        stage.collect(stage.model(wire), ModelRequest(instructions="", messages=(UserMessage(text=long),)))
    )
    assert items[-1].text == "Hi."
    assert long in json.dumps(stage.body, ensure_ascii=False)


def test_signs_of_life_that_say_nothing_do_not_keep_a_request_alive(stage: Any) -> None:
    async def ping(head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        for _ in range(5000):
            writer.write(b'event: ping\ndata: {"type": "ping"}\n\n')
            await writer.drain()
            await asyncio.sleep(0.01)

    failed, seconds = asked(stage, "anthropic", ping, timeout=0.2)
    assert (failed.code, failed.retryable) == ("model_timeout", True)
    assert seconds < 20


def test_a_request_ends_at_its_total_limit_however_much_comes(stage: Any, wire: str) -> None:
    openai = {"choices": [{"index": 0, "delta": {"content": "and "}}]}
    begun = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    more = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "and "}}

    async def go_on(head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD)
        for number in range(5000):
            event = openai if wire == "openai" else more if number else begun
            writer.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    failed, seconds = asked(stage, wire, go_on, options={"timeout": 0.2})
    assert (failed.code, failed.retryable) == ("model_timeout", True)
    assert "not done after 0.2 s" in str(failed)
    assert seconds < 20


def test_a_finished_reply_is_not_held_back_by_a_connection_that_stays_open(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amoxi_py.models.patience._AFTER_THE_END_S", 0.1)
    whole = {"choices": [{"index": 0, "delta": {"content": "Hi."}, "finish_reason": "stop"}]}

    async def hold(head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"data: " + json.dumps(whole).encode() + b"\n\n")
        await writer.drain()
        await asyncio.sleep(30)

    found, seconds = asked(stage, "openai", hold, timeout=20)
    assert isinstance(found, Reply)
    assert found.text == "Hi."
    assert seconds < 20


def test_a_failure_tells_what_it_has_cost_where_the_provider_told_it(stage: Any, wire: str) -> None:
    used = Usage(requests=1, input_tokens=120, output_tokens=7)
    for item, code in (
        (reply(usage=used), "model_empty_reply"),
        (broken(ending="length", usage=used), "model_reply_cut"),
        (broken("half", ending="content_filter", usage=used), "model_content_filtered"),
    ):
        failed = stage.failure(wire, item, ASK)
        assert (failed.code, failed.usage) == (code, used)
    cut = stage.failure(wire, broken("half", usage=used), ASK)
    told = Usage(requests=1, input_tokens=120, output_tokens=1)
    assert cut.usage == (None if wire == "openai" else told)
    assert stage.failure(wire, fail(503), ASK).usage is None


def test_a_reply_whose_limit_was_used_up_by_reasoning_is_not_asked_for_again(stage: Any, wire: str) -> None:
    failed = stage.failure(wire, broken(ending="length"), ASK)
    assert (failed.code, failed.retryable) == ("model_reply_cut", False)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"show_files": "picture"}, "'show_files' is 'picture'"),
        ({"show_files": ["movies"]}, "'documents'"),
        ({"effort": 7}, "'effort' is 7"),
        ({"timeout": 0}, "above 0"),
        ({"timeout": True}, "seconds"),
        ({"max_tokens": "many"}, "whole number"),
        ({"server": "nobody"}, "'mistral'"),
        ({"extra_headers": {"a": 1}}, "names of headers"),
        ({"cache_control": "yes"}, "a mark"),
    ],
)
def test_options_that_cannot_be_are_told_when_a_model_is_made(
    stage: Any, wire: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        stage.model(wire, options=options)


def test_a_model_of_pydantic_ai_keeps_to_the_total_limit_has_a_window_and_no_blank_address(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    stage.playing[:] = [reply("one", gate, "two")]
    inner = OpenAIChatModel("gpt-4", provider=OpenAIProvider(base_url=stage.server.url, api_key="k"))
    model: Any = resolve_model(inner, {})
    assert model.window == 8192
    assert PydanticAIModel(TestModel(), name="openai:gpt-4").window == 8192
    assert PydanticAIModel(TestModel(), name="openai:llama-at-home").window is None

    async def ask() -> Any:
        with pytest.raises(ModelFailed) as caught:
            async for _ in model.stream(ModelRequest(instructions="", messages=ASK.messages, options={"timeout": 0.2})):
                pass
        await model.aclose()
        return caught.value

    failed = stage.run(ask())
    gate.open()
    assert (failed.code, failed.retryable) == ("model_timeout", True)
    monkeypatch.setenv("OPENAI_BASE_URL", " ")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    named: Any = resolve_model("openai-responses:gpt-5-mini", {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": ""})
    assert str(named._model.base_url).startswith("https://api.openai.com/v1")
    assert os.environ["OPENAI_BASE_URL"] == " "
    assert "OPENAI_API_KEY" not in os.environ


def test_the_window_of_well_known_models_is_known_and_of_others_it_is_not(stage: Any) -> None:
    assert stage.model("openai", "gpt-4").window == 8192
    assert stage.model("openai", "gpt-5-mini", url="https://x.openai.azure.com/openai/v1").window == 400_000
    assert stage.model("openai", "llama-at-home").window is None
    assert stage.model("anthropic").window == 1_000_000
