"""Files and long results through a real server process: flat memory, a full disk, and a kill in an upload."""

from __future__ import annotations

import hashlib
import os
import re
import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from amoxi_py.testing import call

MB = 1024 * 1024
LARGE = 25 * MB
APP = '''
from amoxi_py import agent, tool


@tool(read_only=True)
def export() -> str:
    """Export two megabytes."""
    return "two words\\n" * 200_000


@agent(tools=[export])
class Keeper:
    """You keep."""
'''
HEAD = b'--b\r\nContent-Disposition: form-data; name="file"; filename="big.bin"\r\n\r\n'
FORM = {"content-type": "multipart/form-data; boundary=b"}


def body(size: int) -> Iterator[bytes]:
    yield HEAD
    for n in range(size // MB):
        yield n.to_bytes(4, "big") * (MB // 4)
    yield b"\r\n--b--\r\n"


def digest_of(size: int) -> str:
    return hashlib.sha256(b"".join(body(size))[len(HEAD) : -len(b"\r\n--b--\r\n")]).hexdigest()


def upload(api: Any, size: int) -> Any:
    return api.http.post("/files", content=body(size), headers=FORM)


def most_memory(pid: int) -> int:
    """The most memory that a process ever had, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text("ascii"))
    assert found is not None
    return int(found[1]) * 1024


def files_of(folder: Any) -> list[int]:
    """The sizes of all that takes space."""
    return sorted(path.stat().st_size for path in (folder / "data/ai/files").rglob("*") if path.suffix != ".lock"
                  and path.is_file())  # fmt: skip


@pytest.mark.crash
def test_a_large_file_goes_in_and_out_at_flat_memory_and_a_kill_or_a_full_disk_leaves_no_half(
    field_app: Any, start: Any, client: Any, field_env: Any, until: Any
) -> None:
    folder = field_app(APP)
    server = start(folder, env=field_env)
    api = client(server)
    small = upload(api, MB).json()
    assert api.get_path(f"/files/{small['id']}").status_code == 200
    before = most_memory(server.pid)
    large = upload(api, LARGE)
    assert large.status_code == 201, large.text
    seen = hashlib.sha256()
    with api.http.stream("GET", f"/files/{large.json()['id']}") as answer:
        for piece in answer.iter_bytes():
            seen.update(piece)
    assert seen.hexdigest() == digest_of(LARGE)
    assert most_memory(server.pid) - before < 8 * MB

    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (3 * MB, resource.RLIM_INFINITY))
    full = upload(api, 8 * MB)
    assert (full.status_code, full.json()["code"]) == (503, "store_unavailable")
    assert str(folder.path) not in full.text
    assert files_of(folder) == [MB, LARGE]
    log = (folder / "data/ai/amoxi.db-wal").stat().st_size
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (log, resource.RLIM_INFINITY))
    full = api.http.post("/files", files={"file": ("small.txt", b"its bytes have room, its row has none")})
    assert (full.status_code, full.json()["code"], log > 1000) == (503, "store_unavailable", True)
    assert files_of(folder) == [MB, LARGE]
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert upload(api, 2 * MB).status_code == 201

    place = urlsplit(server.url)
    assert place.hostname is not None
    with socket.create_connection((place.hostname, place.port), timeout=20) as line:
        head = f"POST /files HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: {api.http.headers['authorization']}\r\n"
        line.sendall(f"{head}Content-Type: {FORM['content-type']}\r\nContent-Length: {LARGE}\r\n\r\n".encode())
        line.sendall(HEAD + os.urandom(5 * MB))
        until(lambda: len(files_of(folder)) == 4, what="half of it is on the disk")
        server.kill9()
    api = client(start(folder, env=field_env))
    until(lambda: files_of(folder) == [MB, 2 * MB, LARGE], what="the half is swept")
    assert api.get_path(f"/files/{small['id']}").headers["content-length"] == str(MB)


# O22
def test_twenty_results_of_megabytes_at_once_leave_the_server_small(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any
) -> None:
    model = strict_model([call("export"), "It is long."], max_body=100_000)
    server = start(field_app(APP), env=model_env(model))
    api = client(server)
    assert api.submit("keeper", "warm up", wait=20)["status"] == "completed"
    before = most_memory(server.pid)
    runs = [api.submit("keeper", f"export {n}") for n in range(20)]
    assert [api.until_status(run["id"])["status"] for run in runs] == ["completed"] * len(runs)
    assert most_memory(server.pid) - before < 100 * MB
