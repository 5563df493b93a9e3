"""`amoxi runs purge`, `erase` and `export` from outside, beside a running server and without one."""

from __future__ import annotations

import json
import sqlite3
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

TOKEN = "a-token-that-is-long-enough"
CALLERS = {"AI_API_CALLERS_ACME": TOKEN, "AI_API_CALLERS_OTHER": TOKEN + "-2"}
DAY_MS = 86_400_000


class Caller:
    """One caller of a server's HTTP door."""

    def __init__(self, server: Any, token: str = TOKEN) -> None:
        self._server = server
        self.headers = {"authorization": f"Bearer {token}"}

    def ask(self, path: str, body: Any = None, **headers: str) -> Any:
        request = urllib.request.Request(
            self._server.url + path,
            data=body if body is None or isinstance(body, bytes) else json.dumps(body).encode(),
            headers={"content-type": "application/json"} | self.headers | headers,
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def say(self, message: str, *files: str) -> dict[str, Any]:
        body = {"message": message, "files": list(files)}
        run: dict[str, Any] = self.ask("/agents/shop/runs?wait=60", body)
        return run

    def upload(self, content: bytes) -> str:
        head = (
            b'--b\r\ncontent-disposition: form-data; name="file"; filename="a.txt"\r\ncontent-type: text/plain\r\n\r\n'
        )
        answer = self.ask(
            "/files", head + content + b"\r\n--b--\r\n", **{"content-type": "multipart/form-data; boundary=b"}
        )
        file_id: str = answer["id"] if "id" in answer else answer["items"][0]["id"]
        return file_id

    def conversations(self) -> list[str]:
        return [one["id"] for one in self.ask("/agents/shop/conversations")["items"]]


def make_old(shop: Path, conversation_id: str, days: int) -> None:
    with closing(sqlite3.connect(shop / "data" / "ai" / "amoxi.db", isolation_level=None)) as database:
        ago = days * DAY_MS
        database.execute(
            "UPDATE conversation SET updated_at = updated_at - ?, created_at = created_at - ? WHERE id = ?",
            (ago, ago, conversation_id),
        )


def pages(shop: Path) -> int:
    with closing(sqlite3.connect(shop / "data" / "ai" / "amoxi.db")) as database:
        count: int = database.execute("PRAGMA page_count").fetchone()[0]
        return count


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_old_conversations_are_purged_beside_a_server_and_what_is_open_stays(
    shop: Path, serve: Any, amoxi: Any, read: Any
) -> None:
    server = serve(shop, env=CALLERS)
    caller = Caller(server)
    old, new = caller.say("Look up order A-1001"), caller.say("Look up order A-1001")
    waiting = caller.ask("/agents/shop/runs?wait=1", {"message": "Cancel order A-1002"})
    for run in (old, waiting):
        make_old(shop, run["conversation_id"], 40)
    refused = amoxi(shop, "runs", "purge")
    assert refused.returncode == 2
    assert "--older-than DAYS" in refused.stderr
    assert "'ai.retention.days'" in refused.stderr
    dry = read(shop, "runs", "purge", "--older-than", "39", "--dry-run")
    assert dry == {"older_than_days": 39, "dry_run": True, "conversations": 1, "runs": 1}
    assert amoxi(shop, "runs", "purge", "--older-than", "41").stdout.endswith("0 conversations with 0 runs deleted\n")
    assert len(caller.conversations()) == 3
    done = amoxi(shop, "runs", "purge", env={"AI_RETENTION_DAYS": "30"})
    assert done.stdout == "older than 30 days and ended: 1 conversations with 1 runs deleted\n"
    assert caller.conversations() == [waiting["conversation_id"], new["conversation_id"]]


def test_the_file_gets_smaller_while_runs_go_on_and_one_waits(shop: Path, serve: Any, amoxi: Any) -> None:
    server = serve(shop, env=CALLERS)
    caller = Caller(server)
    big = [caller.ask("/agents/shop/runs", {"message": "x" * 190_000}) for _ in range(40)]
    waiting = caller.ask("/agents/shop/runs?wait=1", {"message": "Cancel order A-1002"})
    for run in big:
        caller.ask(f"/agents/shop/runs/{run['id']}/cancel", b"")
        make_old(shop, run["conversation_id"], 100)
    before = pages(shop)
    busy = caller.ask("/agents/shop/runs", {"message": "Boil water for 1 seconds"})
    done = amoxi(shop, "runs", "purge", "--older-than", "90")
    assert done.stdout == "older than 90 days and ended: 40 conversations with 40 runs deleted\n", done.stderr
    assert pages(shop) < before - 500, "all that is free but 4 MB"
    (asked,) = caller.ask("/approvals")["items"]
    caller.ask(f"/approvals/{asked['call_id']}", {"decision": "decline"})
    stream = urllib.request.Request(f"{server.url}/runs/{waiting['id']}/events", headers=caller.headers)
    with urllib.request.urlopen(stream, timeout=60) as events:
        assert "event: run.completed" in events.read().decode(), "what waited goes on"
    assert caller.ask(f"/runs/{busy['id']}")["status"] in ("queued", "running", "completed")


def test_all_of_a_principal_is_exported_and_erased(
    shop: Path, serve: Any, amoxi: Any, read: Any, tmp_path: Path
) -> None:
    server = serve(shop, env=CALLERS)
    caller, other = Caller(server), Caller(server, TOKEN + "-2")
    sent, unused = caller.upload(b"secret plans"), caller.upload(b"never sent")
    run = caller.say("Look up order A-1001", sent)
    waiting = caller.ask("/agents/shop/runs?wait=1", {"message": "Cancel order A-1002"})
    theirs = other.say("Look up order A-1001")
    printed = amoxi(shop, "export", "api:acme")
    assert printed.stderr == "the bytes of 2 files are not among these lines: --to FOLDER writes them too\n"
    lines = lines_of(printed.stdout)
    assert (lines[0]["type"], lines[0]["format"], lines[0]["principal"]) == ("export", 1, "api:acme")
    kinds = [line["type"] for line in lines]
    counts = {kind: kinds.count(kind) for kind in sorted(set(kinds))}
    assert counts == {"conversation": 2, "export": 1, "file": 2, "message": 5, "run": 2}
    runs = {line["id"]: line for line in lines if line["type"] == "run"}
    assert {one["status"] for one in runs.values()} == {"completed", "waiting"}
    assert runs[run["id"]]["output"] == run["output"]
    assert runs[run["id"]]["principal"]["id"] == "api:acme"
    (call,) = [call for line in lines if line["type"] == "message" for call in line["calls"] if call["result"]]
    assert (call["tool"], call["arguments"]) == ("lookup_order", {"order_id": "A-1001"})
    assert theirs["id"] not in printed.stdout
    assert TOKEN not in printed.stdout
    folder = tmp_path / "ann"
    written = amoxi(shop, "export", "api:acme", "--to", str(folder))
    assert written.stdout == f"{folder / 'export.jsonl'}: {len(lines)} lines, 2 files\n"
    assert lines_of((folder / "export.jsonl").read_text("ascii"))[1:] == lines[1:]
    bytes_of = {one.name: one.read_bytes() for one in (folder / "files").iterdir()}
    assert bytes_of == {sent: b"secret plans", unused: b"never sent"}
    assert amoxi(shop, "export", "api:acme", "--to", str(folder)).returncode == 1, "nothing is written over"

    asked = amoxi(shop, "erase", "api:acme")
    assert (asked.returncode, "--yes" in asked.stderr) == (2, True)
    assert len(caller.conversations()) == 2
    erased = read(shop, "erase", "api:acme", "--yes")
    assert erased == {
        "conversations": 2,
        "files": 1,  # the other one went with its conversation
        "connections": 0,
        "idempotency_keys": 0,
        "records": 0,
        "decisions": 0,
        "memories": 0,
    }
    assert caller.conversations() == []
    for path in (f"/runs/{waiting['id']}", f"/files/{sent}", f"/files/{unused}"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            caller.ask(path)
    assert other.conversations() == [theirs["conversation_id"]]
    again = amoxi(shop, "erase", "api:acme", "--yes")
    assert (again.returncode, again.stdout) == (0, "")
    assert again.stderr.startswith("nothing is kept of 'api:acme': ")
    assert amoxi(shop, "export", "api:acme").stderr.startswith("nothing is kept of 'api:acme': ")
    assert list((shop / "data" / "ai" / "files").rglob("*file*")) == []


def test_an_id_that_nobody_can_have_is_a_wrong_use(shop: Path, amoxi: Any, make_store: Any) -> None:
    make_store(shop / "data" / "ai")
    for command in ("erase", "export"):
        answer = amoxi(shop, command, "ann")
        assert answer.returncode == 2
        assert "such as user:42" in answer.stderr
        for options in (["user:\udcff"], ["user:42", "--tenant", "a\x1fb"]):
            answer = amoxi(shop, command, *options)
            assert (answer.returncode, "no letter, digit or sign" in answer.stderr) == (2, True)


def test_more_days_than_anybody_lives_are_refused(shop: Path, amoxi: Any, make_store: Any) -> None:
    make_store(shop / "data" / "ai")
    answer = amoxi(shop, "runs", "purge", "--older-than", "99999999999999999999")
    assert (answer.returncode, "1<=x<=36500" in answer.stderr) == (2, True)
    answer = amoxi(shop, "runs", "purge", env={"AI_RETENTION_DAYS": "99999999999999999999"})
    assert (answer.returncode, "ai.retention.days" in answer.stderr) == (1, True)


def test_what_is_exported_is_for_this_user_alone_in_a_folder_that_was_there_too(
    shop: Path, amoxi: Any, make_store: Any, tmp_path: Path
) -> None:
    make_store(shop / "data" / "ai")
    folder = tmp_path / "there"
    folder.mkdir(mode=0o755)
    assert amoxi(shop, "export", "web:none", "--to", str(folder)).returncode == 0
    assert (folder / "export.jsonl").stat().st_mode & 0o077 == 0


def test_somebody_of_the_same_id_in_a_tenant_is_named_and_not_touched(
    shop: Path, amoxi: Any, say: Any, read: Any
) -> None:
    run = say(shop, "Look up order A-1001")
    with closing(sqlite3.connect(shop / "data" / "ai" / "amoxi.db", isolation_level=None)) as database:
        for table in ("conversation", "run"):
            database.execute(f"UPDATE {table} SET principal = 'user:42' || char(31) || 't1'")
    answer = amoxi(shop, "erase", "user:42", "--yes")
    assert answer.stderr.splitlines()[1] == "somebody of this id is in the tenants 't1': name one with --tenant"
    assert read(shop, "runs", "list")["items"][0]["id"] == run["id"]
    assert read(shop, "erase", "user:42", "--tenant", "t1", "--yes")["conversations"] == 1
    assert read(shop, "runs", "list")["items"] == []
