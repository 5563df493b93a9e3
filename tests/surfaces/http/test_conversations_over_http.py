"""`/agents/{agent}/conversations`."""

from __future__ import annotations

from typing import Any

PATH = "/agents/support-agent/conversations"


def test_conversations_are_listed_newest_first(house: Any) -> None:
    client = house.api()
    ids = [house.submit(client, "hello", wait=10)["conversation_id"] for _ in range(3)]
    page = client.get(PATH, params={"limit": "2"}).json()
    assert [each["id"] for each in page["items"]] == ids[:0:-1]
    assert set(page["items"][0]) == {"id", "agent", "title", "created_at", "updated_at"}
    rest = client.get(PATH, params={"limit": "2", "cursor": page["next_cursor"]}).json()
    assert ([each["id"] for each in rest["items"]], rest["next_cursor"]) == (ids[:1], None)


def test_a_conversation_shows_its_messages_with_their_calls(house: Any) -> None:
    client = house.api()
    run = house.submit(client, "story", wait=10)
    page = client.get(f"{PATH}/{run['conversation_id']}").json()
    assert set(page) == {
        "id", "agent", "title", "created_at", "updated_at", "items", "next_cursor", "last_event_id",
    }  # fmt: skip
    person, asking, answer = page["items"]
    assert (person["role"], person["text"], person["run_id"]) == ("user", "story", run["id"])
    assert (asking["role"], asking["status"]) == ("assistant", "complete")
    assert asking["calls"] == [
        {
            "call_id": asking["calls"][0]["call_id"],
            "tool": "lookup_order",
            "arguments": {"order_id": "A-1001"},
            "status": "done",
            "result": {"id": "A-1001", "status": "shipped"},
        }
    ]
    assert answer["text"].startswith("It is shipped.")
    last = house.events(client, f"/runs/{run['id']}/events")[-1].id
    assert page["last_event_id"] == last


def test_older_messages_come_page_by_page(house: Any) -> None:
    client = house.api()
    conversation = house.submit(client, "m0", wait=10)["conversation_id"]
    for n in range(1, 5):
        house.submit(client, f"m{n}", wait=10, conversation_id=conversation)
    pages: list[list[str]] = []
    cursor: dict[str, str] = {}
    while True:
        page = client.get(f"{PATH}/{conversation}", params={"limit": "4", **cursor}).json()
        pages.insert(0, [message["text"] for message in page["items"]])
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert [len(page) for page in pages] == [2, 4, 4]
    assert [text for page in pages for text in page][::2] == [f"m{n}" for n in range(5)]


def test_an_erased_conversation_is_gone_with_its_runs(house: Any) -> None:
    client = house.api()
    run = house.submit(client, "wait")
    assert house.gate.wait_reached()
    path = f"{PATH}/{run['conversation_id']}"
    erased = client.delete(path)
    assert (erased.status_code, erased.content) == (204, b"")
    assert client.delete(path).status_code == 404
    assert client.get(path).status_code == 404
    assert client.get(path + "/events").status_code == 404
    assert client.get(f"/runs/{run['id']}").status_code == 404
    assert client.get(PATH).json()["items"] == []
    assert client.get("/runs").json()["items"] == []
