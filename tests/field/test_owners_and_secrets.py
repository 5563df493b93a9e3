"""Whose things are whose, across restarts and servers, and that no secret is found anywhere but where it was given."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest

from amoxi_py.testing import call, fail

pytestmark = pytest.mark.crash

KIOSK = '''
from starlette.requests import Request
from amoxi_py import Principal, ToolContext, agent, authenticate, tool
from .ledger import note

CANARY = "canary-of-the-database"


@authenticate
def sign_in(request: Request) -> Principal | None:
    who = request.headers.get("x-user")
    return None if who is None else Principal(id=who, name=who, roles={"staff"} if who.startswith("sue") else set())


@tool(idempotent=True, needs_approval=True, approver="role:staff")
async def refund(order_id: str, ctx: ToolContext) -> str:
    """Refund an order."""
    note("refund", ctx)
    return "refunded"


@tool(read_only=True)
async def connect() -> str:
    """Connect to the database."""
    try:
        raise OSError(f"no answer from postgresql://shop:{CANARY}@db.internal/shop")
    except OSError as error:
        raise RuntimeError(f"cannot connect with password={CANARY}") from error


@agent(tools=[refund, connect])
class Kiosk:
    """You help."""
'''
REFUND = [call("refund", order_id="A-1001"), "It is settled."]


# O27
def test_a_caller_with_a_new_token_after_a_restart_owns_what_it_had_and_the_old_token_is_nobodys(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any
) -> None:
    folder, env = field_app(KIOSK), model_env(strict_model({"*": REFUND}))
    server = start(folder, env=env)
    api, other = client(server), client(server, "globex")
    run = api.submit("kiosk", "refund it")
    api.until_status(run["id"], "waiting")
    events = f"/runs/{run['id']}/events"
    for path in (f"/runs/{run['id']}", events, f"/agents/kiosk/conversations/{run['conversation_id']}"):
        assert other.get_path(path).status_code == 404
    assert other.post_path(f"/runs/{run['id']}/cancel").status_code == 404
    assert other.get_path("/runs").json()["items"] == []
    server.stop()

    server = start(folder, env={**env, "AI_API_CALLERS_ACME": "another-token-of-acme"})
    assert client(server).get_path(f"/runs/{run['id']}").status_code == 401
    renewed = client(server)
    renewed.http.headers["authorization"] = "Bearer another-token-of-acme"
    assert renewed.run(run["id"])["status"] == "waiting"
    assert [one["id"] for one in renewed.get_path("/runs").json()["items"]] == [run["id"]]
    assert renewed.post_path(f"/runs/{run['id']}/cancel").json()["status"] == "cancelled"
    assert folder.ledger("refund") == []


# O13
def test_of_twenty_decisions_of_approvers_on_two_servers_one_wins_and_the_owners_own_counts_for_nothing(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, at_once: Any
) -> None:
    folder, env = field_app(KIOSK), model_env(strict_model({"*": REFUND}))
    servers = [start(folder, env=env) for _ in range(2)]

    def person(name: str, server: int) -> Any:
        api = client(servers[server])
        del api.http.headers["authorization"]
        api.http.headers["x-user"] = name
        return api

    ann, bob = person("ann", 0), person("bob", 1)
    staff = [person(f"sue-{n}", n % 2) for n in range(20)]
    for trial in range(3):
        run = ann.submit("kiosk", f"refund it, {trial}")
        [wanted] = ann.until_status(run["id"], "waiting")["waiting_for"]
        place = f"/approvals/{wanted['call_id']}"
        later = ann.submit("kiosk", "and what about it?", conversation_id=run["conversation_id"])
        assert ann.run(run["id"])["status"] == "waiting", "what others decide is not replaced"
        refusals = [ann.post_path(place, {"decision": "approve"}), bob.post_path(place, {"decision": "approve"})]
        assert [refusal.status_code for refusal in refusals] == [403, 404]
        assert [one["call_id"] for one in staff[1].get_path("/approvals").json()["items"]] == [wanted["call_id"]]
        decisions = ["approve" if n % 4 < 2 else "decline" for n in range(20)]
        answers = at_once(
            *(
                functools.partial(one.post_path, place, {"decision": decision, "reason": decision})
                for one, decision in zip(staff, decisions, strict=True)
            )
        )
        [winner] = {answer.json()["decision"] for answer in answers if answer.status_code == 200}
        for decision, answer in zip(decisions, answers, strict=True):
            assert answer.status_code == (200 if decision == winner else 409)
        assert ann.until_status(run["id"])["status"] == "completed"
        ann.until_status(later["id"], "waiting", "completed")
        ann.post_path(f"/runs/{later['id']}/cancel")
        [told] = [event.data for event in ann.events(run["id"]) if event.type == "approval.decided"]
        assert (told["decision"], told["reason"]) == (winner, winner)
        assert told["by"].startswith("user:sue-")
        assert len(folder.ledger("refund", run=run["id"])) == (winner == "approve")
        assert staff[0].get_path(f"/runs/{run['id']}").status_code == 404, "an approver reads no run"


# O28
def test_no_secret_is_in_a_log_an_event_an_answer_an_error_or_the_store(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any
) -> None:
    model = strict_model({"connect": [call("connect"), "No."], "refused": [fail(401)], "*": REFUND})
    folder = field_app(KIOSK)
    canaries = {
        "OPENAI_API_KEY": "sk-canary-of-the-model\n",
        "AI_API_CALLERS_ACME": "canary-of-the-caller-acme",
        "AI_API_CALLERS_GLOBEX": "canary-of-the-caller-globex",
        "SERVER_SECRET": "canary-of-the-cookies",
        "DATABASE_URL": "postgresql://shop:canary-of-the-address@db.internal/shop",
    }
    server = start(folder, env={**model_env(model), **canaries, "LOG_LEVEL": "debug"})
    api = client(server)
    api.http.headers["authorization"] = f"Bearer {canaries['AI_API_CALLERS_ACME']}"
    seen = []
    for message in ("connect", "refused", "refund it"):
        run = api.submit("kiosk", message)
        run = api.until_status(run["id"], "waiting", "completed", "failed")
        if run["status"] == "waiting":
            api.post_path(f"/runs/{run['id']}/cancel")
        seen += [run, [event.data for event in api.events(run["id"])]]
        seen.append(api.get_path(f"/agents/kiosk/conversations/{run['conversation_id']}").json())
    assert [message.content for message in model.requests[1].messages[-1:]] == ["The tool failed."]
    for token in (b"Bearer canary-of-nobody-at-all", b"Bearer \xe9canary"):
        for path in ("/runs", "/agents/kiosk/runs/run_x", "/chat/kiosk", "/approvals"):
            seen.append(api.get_path(path, headers=[(b"authorization", token)]).text)
    assert server.stop() == 0
    log = server.log()
    assert "tool 'connect', attempt 1, try 1 raised RuntimeError" in log
    assert "postgresql://shop:***@db.internal/shop" in log, "the cause is told, without its password"
    held = {"log": log, "answers": json.dumps(seen)}
    held |= {file.name: file.read_bytes().decode("latin-1") for file in (folder / "data").rglob("amoxi.db*")}
    assert len(held) > 2
    assert [(where, text[text.index("canary") - 60 :][:90]) for where, text in held.items() if "canary" in text] == []


# O28
def test_a_token_that_is_too_short_is_refused_and_not_printed(field_app: Any, start: Any) -> None:
    server = start(field_app(KIOSK), env={"AI_API_CALLERS_ACME": "canary-short"}, wait_ready=False)
    assert server.wait_exit(60) == 1
    assert "AI_API_CALLERS_ACME" in server.log()
    assert "canary" not in server.log()
