"""The agents behind their HTTP door, with the offline model."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from amoxi_py import create_app

SETTINGS = Path(__file__).parents[1] / "application.json"


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AI_MODEL", "offline")
    (tmp_path / "application.json").write_text(SETTINGS.read_text("utf-8"), "utf-8")
    with TestClient(create_app(profile="dev")) as client:
        yield client


def ask(client: TestClient, agent: str, message: str) -> dict:
    answer = client.post(f"/agents/{agent}/runs?wait=30", json={"message": message})
    assert answer.status_code in (200, 202), answer.text
    return answer.json()


def test_an_order_is_looked_up(client: TestClient) -> None:
    run = ask(client, "support-agent", "Where is order A-1001?")
    assert run["output"] == "Here's what I found:\nID: A-1001\nItem: Trail backpack, 28 L\nStatus: shipped"


def test_a_note_is_kept(client: TestClient) -> None:
    ask(client, "assistant", "Add a note: buy tent pegs")
    assert "buy tent pegs" in ask(client, "assistant", "List my notes")["output"]


def test_a_cancellation_waits_for_a_person(client: TestClient) -> None:
    started = client.post("/agents/support-agent/runs?wait=1", json={"message": "Cancel order A-1002"}).json()
    [waiting] = started["waiting_for"]
    path = f"/agents/support-agent/runs/{started['id']}"
    client.post(f"{path}/approvals/{waiting['call_id']}", json={"decision": "decline"}).raise_for_status()
    with client.stream("GET", f"{path}/events") as events:
        text = events.read().decode()
    assert "run.completed" in text
    assert client.get(path).json()["output"] == "That didn't work: The person declined this action."


@pytest.mark.parametrize("page", ["/assistant", "/support-agent"])
def test_the_pages_are_there_and_allow_nothing_inline(client: TestClient, page: str) -> None:
    answer = client.get(page)
    assert answer.status_code == 200
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert "<script>" not in answer.text
