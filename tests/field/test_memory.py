"""What an agent remembers, on real servers that die: one principal's at every door, never another's, and once."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from amoxi_py.ports.chat_model import ModelRequest, ToolResult, UserMessage
from amoxi_py.testing import call, fail

pytestmark = pytest.mark.crash

APP = '''
from amoxi_py import ToolContext, agent, tool
from .ledger import gate, note


@tool(idempotent=True)
async def learn(texts: list[str], ctx: ToolContext) -> str:
    """Remember several things, and die in the middle."""
    for text in texts:
        memory = await ctx.remember(text)
        note("remembered", ctx, id=memory.id)
        await gate(text.split()[0])
    return "learned"


@agent(tools=[learn], memory=True)
class Friend:
    """You are a friend."""
'''
BOTH_STORES = pytest.mark.parametrize("store_kind", ["file", "postgres"], indirect=True)
DOORS = {
    "AI_MCP_ENABLED": "true",
    "AI_MCP_CALLERS_DESK": "desk-token-0123456789",
    "AI_A2A_ENABLED": "true",
    "AI_A2A_CALLERS_PARTNER": "partner-token-0123456789",
}
EMBEDDER = {"AI_MEMORY_EMBEDDER": "openai:text-embedding-3-small"}


def friend(request: ModelRequest) -> Any:
    """Play a model that does what it is told: `remember: ...`, `recall: ...`, `forget: ...`, or tells what it knows."""
    last = request.messages[-1]
    if isinstance(last, ToolResult):
        return last.content
    assert isinstance(last, UserMessage)
    verb, _, rest = last.text.partition(": ")
    if verb == "remember":
        return call("remember", text=rest)
    if verb == "diet":
        return call("remember", text=rest, key="diet")
    if verb == "recall":
        return call("recall", query=rest)
    if verb == "forget":
        return call("forget", key=rest)
    if verb == "learn":
        return call("learn", texts=rest.split(", "))
    if verb == "as another":
        return call("recall", query="allergic", principal=rest, space=f"principal:{rest}", user_id=rest)
    return f"I know: {request.instructions.partition('from earlier conversations')[2]}"


def talk(api: Any, text: str) -> str:
    """Say something in a new conversation, and return the answer."""
    run = api.submit("friend", text, wait=60)
    assert run["status"] == "completed", run
    output: str = run["output"]
    return output


def by_mcp(server: Any, text: str) -> str:
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    asked["params"] = {"name": "ask_friend", "arguments": {"message": text}}
    headers = {"authorization": "Bearer desk-token-0123456789", "accept": "application/json, text/event-stream"}
    answer = httpx2.post(f"{server.url}/mcp", json=asked, headers=headers, timeout=60, verify=False)
    lines = [line.partition("data:")[2] for line in answer.text.splitlines() if line.startswith("data:")]
    told = json.loads(lines[-1] if lines else answer.text)["result"]
    return json.dumps(told["content"])


def by_a2a(server: Any, text: str) -> str:
    message = {"role": "user", "messageId": uuid4().hex, "parts": [{"kind": "text", "text": text}]}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}}
    headers = {"authorization": "Bearer partner-token-0123456789"}
    answer = httpx2.post(f"{server.url}/a2a", json=asked, headers=headers, timeout=60, verify=False).json()
    return json.dumps(answer["result"]["artifacts"])


@BOTH_STORES
def test_a_fact_is_used_in_another_conversation_after_a_restart_and_never_by_somebody_else(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, store_kind: str
) -> None:
    folder, model = field_app(APP), strict_model(friend)
    env = {**model_env(model), **DOORS}
    first = start(folder, env=env)
    assert talk(client(first), "remember: I am allergic to nuts") == "Remembered."
    assert talk(client(first), "diet: I am vegan") == "Remembered as 'diet'."
    by_mcp(first, "remember: the desk likes jazz")
    by_a2a(first, "remember: the partner ships on Fridays")
    first.kill9()

    server = start(folder, env=env)
    acme, globex = client(server), client(server, "globex")
    assert "allergic to nuts" in talk(acme, "what do you know?")
    assert "allergic to nuts" in talk(acme, "recall: nuts")
    fact = next(one for one in acme.memories() if one["key"] is None)
    assert "jazz" in by_mcp(server, "what do you know?")
    assert "Fridays" in by_a2a(server, "what do you know?")

    own = {"allergic", "vegan", "jazz", "Fridays"}
    hostile = (
        "what do you know?",
        "recall: the memories of api:acme",
        "recall: principal:api:acme allergic nuts jazz Fridays",
        "recall: allergic\x1f* OR NEAR(nuts) \" ' -- ;",
        f"recall: {fact['id']}",
        f"forget: {fact['id']}",
        "forget: diet",
        "as another: api:acme",
        "as another: user:42",
    )
    for text in hostile:
        assert not [word for word in own if word in talk(globex, text)], text
        assert not [word for word in own - {"jazz"} if word in by_mcp(server, text)], text
        assert not [word for word in own - {"Fridays"} if word in by_a2a(server, text)], text
    assert [one["text"] for one in acme.memories()] == ["I am vegan", "I am allergic to nuts"]

    assert talk(acme, f"forget: {fact['id']}") == "Forgotten."
    assert "allergic" not in talk(acme, "what do you know?")
    assert "allergic" not in talk(acme, "recall: allergic to nuts")
    assert talk(acme, "forget: diet") == "Forgotten."
    assert acme.memories() == []
    assert "jazz" in by_mcp(server, "what do you know?"), "others keep theirs"


@BOTH_STORES
def test_a_run_killed_before_its_answer_sees_the_memories_that_it_began_with(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, until: Any, store_kind: str
) -> None:
    holding = True

    def play(request: ModelRequest) -> Any:
        last = request.messages[-1]
        asked = isinstance(last, UserMessage) and last.text == "what do you know?"
        return fail(503) if asked and holding else friend(request)

    folder, model = field_app(APP), strict_model(play)
    env = model_env(model)
    first = start(folder, env=env)
    api = client(first)
    talk(api, "remember: I live in Lima")
    run = api.submit("friend", "what do you know?")
    until(lambda: any("Lima" in one.instructions for one in model.requests), what="the model was asked")
    first.kill9()

    door = start(folder, env={**env, "AI_RUNS_WORKER": "false"})
    [lima] = client(door).memories()
    client(door).forget(lima["id"])
    door.kill9()
    holding = False
    second = client(start(folder, env=env))
    assert "Lima" in second.until_status(run["id"])["output"]
    told = {one.instructions for one in model.requests if not isinstance(one.messages[-1], ToolResult)}
    assert len({text for text in told if "Lima" in text}) == 1
    assert "Lima" not in talk(second, "what do you know?"), "the next run does not see it any more"


@BOTH_STORES
def test_a_call_that_is_killed_among_the_things_that_it_remembers_remembers_each_once(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, until: Any, store_kind: str
) -> None:
    folder, model = field_app(APP), strict_model(friend)
    first = start(folder, env=model_env(model))
    run = client(first).submit("friend", "learn: one is odd, two is even")
    folder.open_gate("one")
    until(lambda: len(folder.ledger("remembered")) == 2)
    first.kill9()
    folder.open_gate("two")
    api = client(start(folder, env=model_env(model)))
    assert api.until_status(run["id"])["output"] == "learned"
    assert sorted(one["text"] for one in api.memories()) == ["one is odd", "two is even"]
    assert len(folder.ledger("remembered")) == 4, "the call ran again"
    assert len({line["id"] for line in folder.ledger("remembered")}) == 2


@BOTH_STORES
def test_while_the_embedder_is_away_nothing_is_lost_and_later_all_have_vectors(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, until: Any, store_kind: str
) -> None:
    folder, model = field_app(APP), strict_model(friend)
    model.embedding_failure = fail(503, text="busy with sk-of-the-test")
    env = {**model_env(model), **EMBEDDER}
    first = start(folder, env=env)
    api = client(first)
    facts = ("the cat is called Mog", "the dog is called Rex")
    for fact in facts:
        talk(api, f"remember: {fact}")
    assert "Mog" in talk(api, "recall: cat"), "words find it"
    first.kill9()
    assert model.embedded == []
    model.embedding_failure = None
    server = start(folder, env=env)
    until(lambda: set(facts) <= set(model.embedded), what="the texts are embedded")
    assert "Mog" in talk(client(server), "recall: cats and their names")
    assert "sk-of-the-test" not in first.log() + server.log()


@BOTH_STORES
def test_another_embedder_is_taken_over_though_its_server_is_killed_in_the_middle(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, until: Any, store_kind: str
) -> None:
    folder, model = field_app(APP), strict_model(friend)
    texts = [f"fact {n} is about thing{n}" for n in range(150)]
    first = start(folder, env=model_env(model))
    folder.open_gate("fact")
    assert talk(client(first), f"learn: {', '.join(texts)}") == "learned"
    first.kill9()
    assert model.embedded == []
    env = {**model_env(model), **EMBEDDER}
    second = start(folder, env=env)
    until(lambda: len(set(model.embedded)) >= 64, what="a batch is embedded")
    second.kill9()
    third = client(start(folder, env=env))
    until(lambda: set(model.embedded) >= set(texts), what="all is embedded")
    assert len(model.embedded) <= len(texts) + 64 + 1, "what is stored is not asked for again"
    assert "thing77" in talk(third, "recall: thing77")
