"""The page that describes the routes is there for developers, and it is true."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

OPERATIONS = {
    "list_agents", "submit_run", "list_agent_runs", "get_agent_run", "follow_agent_run", "cancel_agent_run",
    "list_runs", "get_run", "follow_run", "cancel_run", "decide_agent_run_call", "decide_run_call",
    "health_live", "health_ready", "list_conversations", "read_conversation", "erase_conversation",
    "follow_conversation", "upload_file", "download_file", "delete_file", "list_approvals", "decide_call",
    "answer_agent_run_call", "answer_run_call", "signal_agent_run", "signal_run",
    "list_memories", "forget_memory", "forget_memories",
}  # fmt: skip


def test_operation_ids_are_stable(shared_house: Any) -> None:
    schema = shared_house.visitor().get("/openapi.json").json()
    found = [operation["operationId"] for path in schema["paths"].values() for operation in path.values()]
    assert sorted(found) == sorted(OPERATIONS)
    assert shared_house.visitor().get("/docs").status_code == 200


def test_the_pages_for_developers_can_be_left_out(open_house: Callable[..., Any]) -> None:
    house = open_house(docs=False)
    assert house.visitor().get("/openapi.json").status_code == 404
    assert house.visitor().get("/docs").status_code == 404


def test_everything_is_under_the_prefix_and_so_is_the_location(open_house: Callable[..., Any]) -> None:
    house = open_house(prefix="/ai")
    client = house.api()
    response = client.post("/ai/agents/support-agent/runs", json={"message": "hello"})
    assert response.headers["location"] == f"/ai/agents/support-agent/runs/{response.json()['id']}"
    assert client.get(response.headers["location"]).status_code == 200
    for path in ("/agents", "/runs", "/health/live", "/openapi.json", "/docs"):
        assert client.get("/ai" + path).status_code == 200
        assert client.get(path).status_code == 404


@pytest.mark.filterwarnings("default")
def test_invented_requests_are_answered_as_the_page_says(house: Any) -> None:
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    schema = schemathesis.openapi.from_url(f"{house.url}/openapi.json")
    headers = {"authorization": "Bearer acme-token-0123456789"}

    for each in schema.get_all_operations():
        operation = each.ok()

        @settings(
            max_examples=12,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def check(case: Any) -> None:
            # Left out: a cursor and a message can be of the right form and mean nothing.
            case.call_and_validate(headers=headers, timeout=20, excluded_checks=[positive_data_acceptance])

        check()
