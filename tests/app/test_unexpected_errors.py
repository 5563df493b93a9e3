"""An error that nobody expected, of a route that the app has added: its answer and its line are those of a request."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from fastapi.responses import StreamingResponse
from fastapi.testclient import TestClient

from amoxi_py.app.web import create_app
from amoxi_py.engine.log_facts import log_facts

APP = '''
from amoxi_py import agent
from amoxi_py.testing import ScriptedModel


@agent(model=ScriptedModel({"*": ["Hello."]}))
class Greeter:
    """You greet."""
'''


async def breaks() -> None:
    raise RuntimeError("of the app")


async def breaks_later() -> StreamingResponse:
    async def parts() -> Any:
        yield "one"
        raise RuntimeError("of the app")

    return StreamingResponse(parts())


@pytest.mark.parametrize(("route", "status"), [(breaks, 500), (breaks_later, 200)])
def test_it_has_the_id_of_its_request_and_is_logged_once_under_it(make_app: Any, route: Any, status: int) -> None:
    told: list[tuple[str, str | None]] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append((record.getMessage(), log_facts().get("request_id")))

    app = create_app(make_app(APP))
    app.add_api_route("/breaks", route)
    listener = Listener(logging.ERROR)
    logging.getLogger("amoxi_py").addHandler(listener)
    try:
        with TestClient(app, raise_server_exceptions=False) as client:
            answer = client.get("/breaks", headers={"X-Request-Id": "from-a-proxy"})
            counted = dict(app.state.amoxi.door.responses)
    finally:
        logging.getLogger("amoxi_py").removeHandler(listener)
    assert answer.status_code == status
    assert answer.headers["x-request-id"] == "from-a-proxy"
    assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
    assert told == [("GET /breaks failed", "from-a-proxy")]
    assert counted == {str(status): 1}
    if status == 500:
        assert answer.json()["code"] == "internal_error"
        assert "of the app" not in answer.text
