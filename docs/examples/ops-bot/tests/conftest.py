"""What all tests share: a folder of its own for each, with releases in it, and people behind the proxy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from app.releases import Releases
from app.sign_in import OpsSettings

SECRET = "the-secret-of-the-proxy-in-the-tests"
PEOPLE = {"ann": "engineers,on-call", "bob": "engineers, on-call", "eve": "engineers", "zoe": "sales"}
RELEASES = Path("data/releases")


def build(service: str, *versions: str) -> None:
    for version in versions:
        (RELEASES / service / version).mkdir(parents=True, exist_ok=True)


@pytest.fixture(autouse=True)
def own_folder(amoxi_folder):
    """Make a new folder the current one, with the settings of `application.json` and some releases."""
    build("checkout", "1.4.1", "1.4.2")
    build("staging", "2.0.0")


@pytest.fixture
def releases(amoxi_settings) -> Releases:
    return Releases(OpsSettings(proxy_secret=SECRET, production=["checkout"]))


@pytest.fixture
def amoxi_settings() -> dict[str, Any]:
    return {"ops.proxy-secret": SECRET}


@pytest.fixture
def person(amoxi_app) -> Callable[[str], Any]:
    """`person("ann")` is a client of the app whose requests come by the proxy, as Ann's."""

    def sign_in(user: str) -> Any:
        client = amoxi_app.client()
        headers = {"x-auth-user": user, "x-auth-name": user.title(), "x-auth-groups": PEOPLE[user]}
        client.http.headers.update({"x-proxy-secret": SECRET, **headers})
        return client

    return sign_in
