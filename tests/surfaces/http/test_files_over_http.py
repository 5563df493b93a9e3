"""`/files`: bytes in and out, whose they are, and what becomes of their space."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

CONVERSATIONS = "/agents/support-agent/conversations"
MB = 1024 * 1024


def upload(client: Any, content: bytes = b"a,b\n1,2\n", name: str = "table.csv", kind: str = "text/csv") -> Any:
    answer = client.post("/files", files={"file": (name, content, kind)})
    assert answer.status_code == 201, answer.text
    return answer.json()


def stored_bytes(folder: Path) -> list[Path]:
    """The bytes that take space, but for those on their way."""
    return [path for path in (folder / "ai" / "files").rglob("*") if path.is_file() and path.suffix != ".lock"]


def code_of(answer: Any) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["code"]


def test_a_file_comes_out_as_it_went_in(shared_house: Any) -> None:
    client = shared_house.api()
    content = bytes(range(256)) * 5000
    answer = client.post("/files", files={"file": ("Ünïcode näme.bin", content, "application/x-thing")})
    assert answer.status_code == 201
    file = answer.json()
    assert set(file) == {"id", "name", "media_type", "size", "created_at"}
    assert (file["name"], file["media_type"], file["size"]) == (
        "Ünïcode näme.bin", "application/x-thing", len(content),
    )  # fmt: skip
    assert answer.headers["location"] == f"/files/{file['id']}"
    got = client.get(answer.headers["location"])
    assert (got.status_code, got.content) == (200, content)
    assert got.headers["content-type"] == "application/x-thing"
    assert got.headers["content-length"] == str(len(content))


def test_an_empty_file_is_a_file(shared_house: Any) -> None:
    client = shared_house.api()
    file = upload(client, b"", "empty.txt")
    got = client.get(f"/files/{file['id']}")
    assert (file["size"], got.status_code, got.content) == (0, 200, b"")
    assert code_of(client.get(f"/files/{file['id']}", headers={"range": "bytes=0-"})) == (416, "range_not_satisfiable")


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("..\\..\\boot.ini", "boot.ini"),
        ("/abs/olute.txt", "olute.txt"),
        ("..", "file"),
        ("a\u202egpj.exe", "agpj.exe"),
        ("line\u2028break.txt", "linebreak.txt"),
        ("x" * 300 + ".csv", "x" * 196 + ".csv"),
        (".hidden", "hidden"),
    ],
)
def test_a_name_is_no_path_and_hides_nothing(shared_house: Any, sent: str, kept: str) -> None:
    assert upload(shared_house.api(), name=sent)["name"] == kept


def test_only_pictures_are_shown_and_nothing_runs(shared_house: Any) -> None:
    client = shared_house.api()
    for name, kind, shown in (
        ("page.html", "text/html", "attachment"),
        ("drawing.svg", "image/svg+xml", "attachment"),
        ("paper.pdf", "application/pdf", "attachment"),
        ("picture.png", "image/png", "inline"),
    ):
        got = client.get(f"/files/{upload(client, b'<script>', name, kind)['id']}")
        assert got.headers["content-disposition"] == f"{shown}; filename=\"{name}\"; filename*=UTF-8''{name}"
        assert got.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in got.headers["content-security-policy"]
        assert got.headers["cache-control"] == "private, no-cache"
    quoted = upload(client, name='a";x="b\u00e4.csv')
    disposition = client.get(f"/files/{quoted['id']}").headers["content-disposition"]
    assert disposition.count('"') == 2, "a name cannot leave its place in the header"


def test_a_media_type_that_is_none_is_made_of_the_name(shared_house: Any) -> None:
    client = shared_house.api()
    assert upload(client, kind="no type at all")["media_type"] == "text/csv"
    assert upload(client, kind="TEXT/HTML; charset=x")["media_type"] == "text/html"
    assert upload(client, name="what", kind="")["media_type"] == "application/octet-stream"


def test_a_part_of_a_file_can_be_had_and_what_is_known_is_not_sent_again(shared_house: Any) -> None:
    client = shared_house.api()
    path = f"/files/{upload(client, b'0123456789')['id']}"
    etag = client.get(path).headers["etag"]
    for wanted, got, told in (
        ("bytes=2-4", b"234", "bytes 2-4/10"),
        ("bytes=7-", b"789", "bytes 7-9/10"),
        ("bytes=-3", b"789", "bytes 7-9/10"),
        ("bytes=8-99", b"89", "bytes 8-9/10"),
    ):
        answer = client.get(path, headers={"range": wanted})
        assert (answer.status_code, answer.content, answer.headers["content-range"]) == (206, got, told)
        assert client.get(path, headers={"range": wanted, "if-range": '"other"'}).status_code == 200
    for whole in ("bytes=0-1,3-4", "lines=1-2", "bytes=-", "bytes=5-2"):
        answer = client.get(path, headers={"range": whole})
        assert (answer.status_code, answer.content) == (200, b"0123456789"), whole
    beyond = client.get(path, headers={"range": "bytes=10-"})
    assert (code_of(beyond), beyond.headers["content-range"]) == ((416, "range_not_satisfiable"), "bytes */10")
    known = client.get(path, headers={"if-none-match": f'"x", {etag}'})
    assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", etag)


def test_what_is_told_of_a_file_can_be_had_without_its_bytes(shared_house: Any) -> None:
    client = shared_house.api()
    path = f"/files/{upload(client, b'0123456789')['id']}"
    got, told = client.get(path), client.head(path, headers={"range": "bytes=2-4"})
    dates = {"date", "x-request-id"}
    assert {name: told.headers[name] for name in set(told.headers) - dates} == {
        name: got.headers[name] for name in set(got.headers) - dates
    }
    assert (told.status_code, told.content, told.headers["content-length"]) == (200, b"", "10")
    assert client.head(path, headers={"if-none-match": got.headers["etag"]}).status_code == 304
    assert client.head("/files/file_none").status_code == 404


def test_a_file_that_is_deleted_while_it_is_sent_breaks_the_connection(
    house: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client = house.api()
    path = f"/files/{upload(client, bytes(24 * MB))['id']}"
    with client.stream("GET", path) as got:
        pieces = got.iter_raw()
        next(pieces)
        assert client.delete(path).status_code == 204
        with pytest.raises(httpx2.RemoteProtocolError):
            list(pieces)
    (told,) = [one for one in caplog.records if one.name == "amoxi_py.http"]
    assert told.getMessage().startswith("a download broke off: ")
    assert [one for one in caplog.records if one.exc_info] == []


def test_somebody_elses_file_is_an_unknown_one_at_every_door(shared_house: Any) -> None:
    mine, other = shared_house.api(), shared_house.api("globex")
    file, unknown = upload(mine)["id"], "file_" + "0" * 26
    for asked in (file, unknown, file.upper(), f"{file}%20", "..%2f..%2famoxi.db"):
        for method in ("GET", "DELETE"):
            answer = other.request(method, f"/files/{asked}")
            assert code_of(answer) == (404, "not_found")
    for asked in (file, unknown, "../x", ""):
        answer = other.post("/agents/support-agent/runs", json={"message": "look", "files": [asked]})
        assert code_of(answer) == (404, "not_found")
    assert other.get(CONVERSATIONS).json()["items"] == [], "nothing was begun"
    assert mine.get(f"/files/{file}").status_code == 200


def test_a_message_shows_its_files_and_the_model_is_told_of_them(house: Any) -> None:
    client = house.api()
    file = upload(client)
    run = house.submit(client, "what is in it?", wait=10, files=[file["id"], file["id"]])
    person, _ = client.get(f"{CONVERSATIONS}/{run['conversation_id']}").json()["items"]
    assert person["files"] == [file["id"]]
    told = house.model.requests[-1].messages[0].content
    assert told == f"what is in it?\n[file {file['id']}: 'table.csv', text/csv, 8 bytes]"
    client.delete(f"/files/{file['id']}")
    house.submit(client, "", wait=10, conversation_id=run["conversation_id"], files=[upload(client)["id"]])
    messages = house.model.requests[-1].messages
    assert messages[0].content == f"what is in it?\n[file {file['id']}: deleted]"
    assert messages[2].content.startswith("[file file_"), "a message may be files alone"


def test_a_refused_message_with_an_unknown_file_disturbs_nothing(house: Any) -> None:
    client = house.api()
    run = house.submit(client, "wait")
    body = {"message": "x", "conversation_id": run["conversation_id"], "files": ["file_0"]}
    assert code_of(client.post("/agents/support-agent/runs", json=body)) == (404, "not_found")
    house.gate.open()
    with house.follow(client, f"/runs/{run['id']}/events") as events:
        assert [event.type for event in events][-1] == "run.completed"


def test_the_same_bytes_are_stored_once_and_their_space_comes_back(house: Any, tmp_path: Path) -> None:
    client, other = house.api(), house.api("globex")
    first, second = upload(client, b"x" * MB), upload(client, b"x" * MB, "again.csv")
    runs = [house.submit(client, f"m{n}", wait=10, files=[first["id"]]) for n in range(3)]
    assert len(stored_bytes(tmp_path)) == 1
    upload(other, b"x" * MB)
    assert len(stored_bytes(tmp_path)) == 2, "owners share nothing"
    for n, run in enumerate(runs):
        assert client.get(f"/files/{first['id']}").status_code == 200, n
        assert client.delete(f"{CONVERSATIONS}/{run['conversation_id']}").status_code == 204
    assert client.get(f"/files/{first['id']}").status_code == 404, "it was used in these conversations alone"
    assert client.get(f"/files/{second['id']}").content == b"x" * MB
    assert client.delete(f"/files/{second['id']}").status_code == 204
    assert [path.stat().st_size for path in stored_bytes(tmp_path)] == [MB]
    assert len(stored_bytes(tmp_path)) == 1
    assert client.delete(f"/files/{second['id']}").status_code == 404


@pytest.mark.parametrize(
    ("body", "kind", "code"),
    [
        (b'{"file": 1}', "application/json", (415, "unsupported_media_type")),
        (b"x", "multipart/form-data", (422, "invalid_multipart")),
        (b"x", "multipart/form-data; boundary=b", (422, "invalid_multipart")),
        (b"--b--\r\n", "multipart/form-data; boundary=b", (422, "invalid_multipart")),
        (b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nhalf',
         "multipart/form-data; boundary=b", (422, "invalid_multipart")),
        (b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\ntext\r\n--b--\r\n',
         "multipart/form-data; boundary=b", (422, "invalid_request")),
        (b'--b\r\nContent-Disposition: form-data; name="other"; filename="f"\r\n\r\nx\r\n--b--\r\n',
         "multipart/form-data; boundary=b", (422, "invalid_request")),
        (b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nx\r\n'
         b'--b\r\nContent-Disposition: form-data; name="file"; filename="g"\r\n\r\nx\r\n--b--\r\n',
         "multipart/form-data; boundary=b", (422, "invalid_request")),
        (b"--b\r\nX: " + b"y" * 100_000, "multipart/form-data; boundary=b", (422, "invalid_multipart")),
        (b"\r\n" * 50_000, "multipart/form-data; boundary=b", (413, "body_too_large")),
        (b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nx\r\n--b--\r\n' + b"y" * 100_000,
         "multipart/form-data; boundary=b", (413, "body_too_large")),
    ],
    ids=range(11),
)  # fmt: skip
def test_a_body_that_is_no_file_is_refused(shared_house: Any, body: bytes, kind: str, code: tuple[int, str]) -> None:
    for content in (body, iter([body])):  # with its length, and in chunks
        answer = shared_house.api().post("/files", content=content, headers={"content-type": kind})
        assert code_of(answer) == code


def test_a_file_that_is_too_large_is_refused_before_it_is_sent(house: Any, tmp_path: Path) -> None:
    place = urlsplit(house.url)
    assert place.hostname is not None
    with socket.create_connection((place.hostname, place.port), timeout=60) as line:
        head = (
            f"POST /files HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: {house.api().headers['authorization']}\r\n"
            f"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {26 * MB}\r\n\r\n"
        )
        line.sendall(head.encode())
        assert line.recv(100).startswith(b"HTTP/1.1 413"), "none of its bytes were asked for"

    def pieces() -> Any:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
        for _ in range(26):
            yield b"x" * MB
        yield b"\r\n--b--\r\n"

    answer = house.api().post("/files", content=pieces(), headers={"content-type": "multipart/form-data; boundary=b"})
    assert code_of(answer) == (413, "body_too_large")
    assert stored_bytes(tmp_path) == [], "what was stored of it is gone"


def test_a_visitor_who_begins_with_a_file_is_known_afterwards(shared_house: Any) -> None:
    visitor = shared_house.visitor()
    file = upload(visitor)
    assert visitor.get(f"/files/{file['id']}").status_code == 200
    assert shared_house.visitor().get(f"/files/{file['id']}").status_code == 404
