"""`amoxi connections`: an operator sees and ends what people have allowed programs, beside running servers."""

from __future__ import annotations

import asyncio
import hashlib
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

from amoxi_py.app.oauth import grants_of
from amoxi_py.domain.principal import Principal
from amoxi_py.stores.sqlite.store import SqliteStore
from amoxi_py.surfaces.mcp.oauth.clients import Client

ANN = Principal(id="user:42", name="Ann", tenant="t1")
BOB = Principal(id="user:43", name="Bob")
PROGRAM = Client(id="c", name="Claude\nDesktop", redirect_uris=())


def connect(folder: Path, *people: Principal) -> dict[str, str]:
    """Let people allow a program; return their access tokens."""

    async def make() -> dict[str, str]:
        store = SqliteStore(folder)
        await store.open(lambda events: None)
        grants, found = grants_of(lambda: store), {}
        challenge = urlsafe_b64encode(hashlib.sha256(b"verifier").digest()).decode().rstrip("=")
        told = {"redirect_uri": "https://claude.ai/cb", "challenge": challenge, "resource": "r", "target": "claude.ai"}
        for person in people:
            code = await grants.allow(PROGRAM, person, **told)
            given = await grants.exchange(PROGRAM, {"code": code, "code_verifier": "verifier"}, None)
            found[person.id] = given["access_token"]
        await store.close()
        return found

    return asyncio.run(make())


def whose(folder: Path, token: str) -> Principal | None:
    async def look() -> Principal | None:
        store = SqliteStore(folder)
        await store.open(lambda events: None)
        found = await grants_of(lambda: store).principal_of(token, None)
        await store.close()
        return found

    return asyncio.run(look())


def test_an_operator_sees_and_ends_the_connections_of_somebody_who_has_left(shop: Path, amoxi: Any, read: Any) -> None:
    folder = shop / "data" / "ai"
    tokens = connect(folder, ANN, ANN, BOB)
    listed = read(shop, "connections", "list", "user:42", "--tenant", "t1")["items"]
    assert [(one["program"], one["target"]) for one in listed] == [("Claude\nDesktop", "claude.ai")] * 2
    table = amoxi(shop, "connections", "list", "user:43").stdout.splitlines()
    assert len(table) == 2
    assert "Claude Desktop" in table[1]
    other = amoxi(shop, "connections", "end", "user:42")
    assert (other.returncode, other.stderr.partition(":")[0]) == (0, "no connections"), "of another tenant"
    assert whose(folder, tokens["user:42"]) == ANN
    assert read(shop, "connections", "end", "user:42", "--tenant", "t1") == {"ended": 2}
    assert whose(folder, tokens["user:42"]) is None
    assert whose(folder, tokens["user:43"]) == BOB
    assert amoxi(shop, "connections", "end", "user:43").stdout == "ended: 1\n"
