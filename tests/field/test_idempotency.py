"""X01: a client that sends its message again, because the answer was lost, has one run and one effect."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from amoxi_py.ports.chat_model import ModelRequest, ToolResult
from amoxi_py.testing import call

PAYING = '''
from amoxi_py import ToolContext, agent, tool
from .ledger import gate, note


@tool
async def pay(order: str, ctx: ToolContext) -> str:
    """Pay an order."""
    note("paid", ctx, order=order)
    if order.startswith("slow"):
        await gate(order)
    return "paid"


@agent(tools=[pay])
class Payer:
    """You pay."""


@agent(tools=[pay], on_busy="reject")
class Strict:
    """You pay one after another."""
'''


def pay_what_is_named(request: ModelRequest) -> Any:
    last = request.messages[-1]
    return "Paid." if isinstance(last, ToolResult) else call("pay", order=last.text)  # type: ignore[union-attr]


def post(api: Any, message: str, key: str, agent: str = "payer", **more: Any) -> httpx2.Response:
    return api.post_path(f"/agents/{agent}/runs", {"message": message, **more}, headers={"idempotency-key": key})


def test_a_post_whose_answer_was_lost_is_sent_again_and_names_the_first_run(
    field_app: Any, start: Any, client: Any, proxy: Any, strict_model: Any, model_env: Any, until: Any
) -> None:
    folder = field_app(PAYING)
    server = start(folder, env=model_env(strict_model(pay_what_is_named)))
    api, between = client(server), proxy(server)
    between.lose_answers = True
    through = httpx2.Client(base_url=between.url, headers=api.http.headers, timeout=10, verify=False)
    with through, pytest.raises(httpx2.TransportError):
        through.post("/agents/payer/runs", json={"message": "A-1"}, headers={"idempotency-key": "k-1"})
    assert between.lost == 1
    between.lose_answers = False
    again = post(api, "A-1", "k-1")
    assert again.status_code == 202
    until(lambda: folder.ledger("paid"))
    assert [line["run"] for line in folder.ledger("paid")] == [again.json()["id"]]
    api.until_status(again.json()["id"], "completed")
    ended = post(api, "A-1", "k-1")
    assert (ended.status_code, ended.json()["id"], ended.json()["status"]) == (202, again.json()["id"], "completed")
    assert ended.headers["location"] == again.headers["location"]
    waited = api.post_path(
        "/agents/payer/runs", {"message": "A-1"}, params={"wait": "5"}, headers={"idempotency-key": "k-1"}
    )
    assert (waited.status_code, waited.json()["output"]) == (200, "Paid.")
    assert [run["id"] for run in api.get_path("/runs").json()["items"]] == [again.json()["id"]]
    assert len(folder.ledger("paid")) == 1


def test_a_key_is_one_callers_for_one_agent_and_one_request(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any
) -> None:
    folder = field_app(PAYING)
    server = start(folder, env=model_env(strict_model(pay_what_is_named)))
    acme, globex = client(server), client(server, "globex")
    first = post(acme, "A-1", "key").json()
    other_body = post(acme, "A-2", "key")
    assert (other_body.status_code, other_body.headers["content-type"]) == (409, "application/problem+json")
    other_place = post(acme, "A-1", "key", conversation_id=first["conversation_id"])
    assert other_place.status_code == 409
    # the same request, written in another way
    spaced = acme.http.post(
        "/agents/payer/runs",
        content='{ "files": [],\n "message": "\\u0041-1" }',
        headers={"idempotency-key": "key", "content-type": "application/json"},
    )
    assert spaced.json()["id"] == first["id"]
    runs = {first["id"], post(globex, "A-1", "key").json()["id"], post(acme, "A-1", "key", agent="strict").json()["id"]}
    runs |= {post(acme, "A-1", "other-key").json()["id"], acme.submit("payer", "A-1")["id"]}
    assert len(runs) == 5
    for api in (acme, globex):
        for run in api.get_path("/runs").json()["items"]:
            api.until_status(run["id"], "completed")
    assert len(folder.ledger("paid")) == 5
    assert post(globex, "A-2", "key").status_code == 409
    for bad in ("", "two words", "k" * 256, "caf\u00e9"):
        refused = acme.http.post(
            "/agents/payer/runs", json={"message": "A-9"}, headers=[(b"idempotency-key", bad.encode("latin-1"))]
        )
        assert refused.status_code == 422, bad


@pytest.mark.crash
def test_one_key_sent_many_times_at_once_to_two_servers_and_after_a_kill_is_one_run(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, until: Any, at_once: Any
) -> None:
    folder = field_app(PAYING)
    env = model_env(strict_model(pay_what_is_named))
    first, second = start(folder, env=env), start(folder, env=env)
    callers = [client(server) for server in (first, second) for _ in range(6)]
    for trial in range(10):
        answers = at_once(*(lambda api=api, trial=trial: post(api, f"A-{trial}", f"k-{trial}") for api in callers))
        assert {answer.status_code for answer in answers} == {202}
        [run_id] = {answer.json()["id"] for answer in answers}
        client(first).until_status(run_id, "completed")
    slow = post(client(first), "slow", "k-slow").json()
    until(lambda: folder.ledger("paid", order="slow"))
    first.kill9()
    second.kill9()
    folder.open_gate("slow")
    api = client(start(folder, env=env))
    again = post(api, "slow", "k-slow").json()
    assert again["id"] == slow["id"]
    assert api.until_status(slow["id"])["status"] == "completed"
    assert post(api, "A-0", "k-0").json()["status"] == "completed"
    assert len(folder.ledger("paid")) == 11
    assert len(api.get_path("/runs").json()["items"]) == 11


def test_a_repeated_post_disturbs_no_newer_turn_and_is_looked_up_before_any_refusal(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, until: Any
) -> None:
    folder = field_app(PAYING)
    api = client(start(folder, env=model_env(strict_model(pay_what_is_named))))
    for agent in ("payer", "strict"):
        first = post(api, "A-1", "k-1", agent=agent).json()
        conversation = api.until_status(first["id"])["conversation_id"]
        second = post(api, f"slow-{agent}", "k-2", agent=agent, conversation_id=conversation).json()
        until(lambda agent=agent: folder.ledger("paid", order=f"slow-{agent}"))
        assert post(api, "A-1", "k-1", agent=agent).json()["id"] == first["id"]
        repeated = post(api, f"slow-{agent}", "k-2", agent=agent, conversation_id=conversation)
        assert (repeated.status_code, repeated.json()["id"]) == (202, second["id"]), repeated.text
        assert api.run(second["id"])["status"] == "running"
        refused = post(api, f"slow-{agent}", "k-1", agent=agent, conversation_id=conversation)
        assert refused.status_code == 409
        assert api.run(second["id"])["status"] == "running", "a refused request disturbs nothing"
        folder.open_gate(f"slow-{agent}")
        assert api.until_status(second["id"])["status"] == "completed"
    assert len(folder.ledger("paid")) == 4


def test_a_refused_request_leaves_its_key_free_and_an_erased_conversation_is_not_made_again(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, until: Any
) -> None:
    folder = field_app(PAYING)
    api = client(start(folder, env=model_env(strict_model(pay_what_is_named))))
    assert post(api, "", "k-1").status_code == 422
    assert post(api, "A-1", "k-1", conversation_id="conv_00000000000000000000000000").status_code == 404
    first = post(api, "A-1", "k-1").json()
    assert api.until_status(first["id"])["status"] == "completed"
    assert api.http.delete(f"/agents/payer/conversations/{first['conversation_id']}").status_code == 204
    erased = post(api, "A-1", "k-1")
    assert 400 <= erased.status_code < 500, erased.text
    assert api.get_path("/runs").json()["items"] == []
    busy = post(api, "slow", "k-2", agent="strict").json()
    until(lambda: folder.ledger("paid", order="slow"))
    assert post(api, "A-3", "k-3", agent="strict", conversation_id=busy["conversation_id"]).status_code == 409
    folder.open_gate("slow")
    api.until_status(busy["id"], "completed")
    later = post(api, "A-3", "k-3", agent="strict", conversation_id=busy["conversation_id"])
    assert later.status_code == 202, "the refusal was not stored under the key"
    api.until_status(later.json()["id"], "completed")
    assert [line["order"] for line in folder.ledger("paid")] == ["A-1", "slow", "A-3"]


def ids_in(stream: httpx2.Response) -> list[str]:
    """The ids of a stream's events, without pieces of a message: who comes late gets the whole in their place."""
    lines = [line for line in stream.text.splitlines() if line.startswith(("id: ", "event: "))]
    told = zip(lines[::2], lines[1::2], strict=True)
    return [number.removeprefix("id: ") for number, event in told if event != "event: message.delta"]


def test_a_post_that_asks_for_the_stream_itself_is_sent_again_and_streams_the_same_run(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any
) -> None:
    folder = field_app(PAYING)
    api = client(start(folder, env=model_env(strict_model(pay_what_is_named))))
    headers = {"idempotency-key": "k-1", "accept": "text/event-stream"}
    first = api.post_path("/agents/payer/runs", {"message": "A-1"}, headers=headers)
    assert (first.status_code, first.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    ids = ids_in(first)
    again = api.post_path("/agents/payer/runs", {"message": "A-1"}, headers=headers)
    assert ids_in(again) == ids
    rest = api.post_path("/agents/payer/runs", {"message": "A-1"}, headers={**headers, "last-event-id": ids[2]})
    assert ids_in(rest) == ids[3:]
    over = api.post_path("/agents/payer/runs", {"message": "A-1"}, headers={**headers, "last-event-id": ids[-1]})
    assert over.status_code == 204
    assert len(folder.ledger("paid")) == 1
