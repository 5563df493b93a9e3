"""What all tests share: a folder of its own for each, and the shop's own app behind a real server."""

import contextlib
import importlib
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from app.database import sessions
from app.people import PEOPLE, Person, make_token
from app.settings import ShopSettings

from amoxi_py.testing import Client

KEY = "a-key-of-the-tests-that-is-long-enough"


@pytest.fixture(autouse=True)
def own_folder(amoxi_folder):
    """Make a new folder the current one, with the settings of `application.json`."""


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Serve `main:app`: `shop.url`, `shop.app`, and `shop.open_sessions()`, which no request and no call may leave."""
    monkeypatch.setenv("SHOP_JWT_KEY", KEY)
    monkeypatch.setenv("AI_MODEL", "offline")
    sys.modules.pop("main", None)  # an app is served once; each test has its own
    app = importlib.import_module("main").app
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        wait_until(lambda: server.started or not thread.is_alive())
        assert server.started, "the shop did not start"
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        yield SimpleNamespace(url=url, app=app, open_sessions=lambda: sessions.kw["bind"].pool.checkedout())
        server.should_exit = True
        thread.join()


@pytest.fixture
def token() -> Callable[..., str]:
    """Make a token as the shop does, but also one that has expired, or is signed with another key."""

    def make(who: str | Person, *, minutes: int = 5, key: str = KEY) -> str:
        person = PEOPLE[who][0] if isinstance(who, str) else who
        return make_token(
            person, ShopSettings.model_construct(jwt_key=ShopSettings(jwt_key=key).jwt_key, token_minutes=minutes)
        )

    return make


@pytest.fixture
def person(shop: SimpleNamespace, token: Callable[..., str]) -> Iterator[Callable[..., Any]]:
    """Sign somebody in: `person("ann")` has `.ai` for the agents' routes and `.own` for the shop's."""
    with contextlib.ExitStack() as closing:

        def sign_in(who: str | Person, **of_token: Any) -> SimpleNamespace:
            bearer = token(who, **of_token)
            ai, own = Client(f"{shop.url}/ai", token=bearer), Client(shop.url, token=bearer)
            for client in (ai, own):
                closing.callback(client.close)
            return SimpleNamespace(ai=ai, own=own.http)

        yield sign_in


@pytest.fixture
def until() -> Callable[..., None]:
    return wait_until


def wait_until(holds: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come to hold in time"
        time.sleep(0.005)
