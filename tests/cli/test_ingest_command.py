"""`amoxi ingest` from outside: a folder's documents in a base, on both stores, through kills, beside others."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from amoxi_py.app.documents.folder import look_into, read_file
from amoxi_py.app.documents.reading import kind_of, read_document
from amoxi_py.app.store import make_store
from amoxi_py.cli.progress import Progress
from amoxi_py.config.load import load_settings
from amoxi_py.domain.memory import space_of_documents
from amoxi_py.testing import StrictModelServer, fail
from pdfs import pdf_of
from processes import clean_environment

DOCS = Path(__file__).parents[2] / "docs"
EMPTY = {"new": [], "changed": [], "unchanged": [], "removed": [], "passages": 0}


@pytest.fixture(params=["file", "postgres"])
def env(request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment of a command, with the one store or the other."""
    if request.param == "file":
        return {}
    return {"AI_STORE_TYPE": "postgres", "DATABASE_URL": request.getfixturevalue("postgres_url")}


@pytest.fixture
def app(app_folder: Any) -> Path:
    """An app's folder, with an empty folder for documents."""
    folder: Path = app_folder({"app/__init__.py": ""})
    (folder / "handbook").mkdir()
    return folder


def write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)


def kept(folder: Path, env: Mapping[str, str], base: str = "docs") -> list[tuple[str, str, str]]:
    """Return source, place and text of all passages of a base."""

    async def read() -> list[tuple[str, str, str]]:
        settings = load_settings(folder, environ=env)
        store = make_store(settings)
        await store.open(lambda events: None)
        try:
            found, cursor = [], None
            while True:
                page = await store.list_passages(space_of_documents(base), limit=200, cursor=cursor)
                found += [(one.source or "", json.loads(one.metadata)["place"], one.text) for one in page.items]
                cursor = page.next_cursor
                if cursor is None:
                    return sorted(found)
        finally:
            await store.close()

    return asyncio.run(read())


def unembedded(folder: Path, env: Mapping[str, str], embedder: str = "offline") -> int:
    async def count() -> int:
        store = make_store(load_settings(folder, environ=env))
        await store.open(lambda events: None)
        try:
            return len(await store.unembedded(embedder, 10_000))
        finally:
            await store.close()

    return asyncio.run(count())


def wanted(folder: Path) -> list[tuple[str, str, str]]:
    """Return what a folder says, as it is read."""
    return sorted(
        (path, chunk.place, chunk.text)
        for path in look_into(folder).documents
        for chunk in read_document(kind_of(path), read_file(folder, path)).chunks
    )


def test_a_base_follows_its_folder(app: Path, amoxi: Any, env: dict[str, str]) -> None:
    def ingest(*options: str) -> dict[str, Any]:
        done = amoxi(app, "ingest", "handbook", "--json", *options, env=env)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        return {name: told[name] for name in EMPTY}

    book = app / "handbook"
    write(book, {"a.md": "# A\n\nOne.", "b.txt": "Two.", "deep/c.pdf": pdf_of("Three.")})
    would = ingest("--dry-run")
    assert would == {**EMPTY, "new": ["a.md", "b.txt", "deep/c.pdf"], "passages": 3}
    assert kept(app, env) == []
    assert ingest() == would
    assert kept(app, env) == [("a.md", "A", "A\n\nOne."), ("b.txt", "", "Two."), ("deep/c.pdf", "page 1", "Three.")]
    assert unembedded(app, env) == 0
    assert ingest() == {**EMPTY, "unchanged": ["a.md", "b.txt", "deep/c.pdf"]}
    write(book, {"a.md": "# A\n\nOne more.", "d.md": "Four."})
    (book / "b.txt").unlink()
    (book / "deep" / "c.pdf").write_bytes(b"")
    assert ingest() == {
        **EMPTY,
        "new": ["d.md"],
        "changed": ["a.md"],
        "removed": ["b.txt", "deep/c.pdf"],
        "passages": 2,
    }
    assert kept(app, env) == wanted(book)
    assert unembedded(app, env) == 0


def test_bases_are_apart_and_one_is_taken_away(app: Path, amoxi: Any, env: dict[str, str]) -> None:
    write(app / "handbook", {"a.md": "One."})
    write(app / "other", {"a.md": "Two."})
    assert amoxi(app, "ingest", "handbook", env=env).returncode == 0
    assert amoxi(app, "ingest", "other", "--base", "second", env=env).returncode == 0
    assert (kept(app, env), kept(app, env, "second")) == ([("a.md", "", "One.")], [("a.md", "", "Two.")])
    shown = amoxi(app, "ingest", "--remove", "--base", "second", "--dry-run", env=env)
    assert shown.stdout == "second: would be: 0 new, 0 changed, 0 unchanged, 1 removed (0 passages)\n"
    assert kept(app, env, "second") != []
    assert amoxi(app, "ingest", "--remove", "--base", "second", env=env).returncode == 0
    assert (kept(app, env), kept(app, env, "second")) == ([("a.md", "", "One.")], [])


def test_only_what_changed_is_embedded_again(app: Path, amoxi: Any, env: dict[str, str]) -> None:
    paragraphs = [f"Paragraph {n} is about thing number {n}. " * 25 for n in range(8)]
    write(app / "handbook", {"a.md": "# A\n\n" + "\n\n".join(paragraphs)})
    assert amoxi(app, "ingest", "handbook", env=env).returncode == 0
    vectors = vectors_of(app, env)
    assert len(vectors) == 8
    write(app / "handbook", {"a.md": "# A\n\n" + "Put in. " * 140 + "\n\n" + "\n\n".join(paragraphs)})
    assert amoxi(app, "ingest", "handbook", env=env).returncode == 0
    after = vectors_of(app, env)
    assert len(after) == 9
    assert len(vectors & after) >= 7, "the keys of vectors that were made before"


def rows(app: Path, env: Mapping[str, str], statement: str) -> list[tuple[Any, ...]]:
    """Ask the database itself; `{0}` is what stands before a table's name."""
    if env:
        with psycopg.connect(env["DATABASE_URL"]) as database:
            return database.execute(statement.format("amoxi.").encode()).fetchall()
    with closing(sqlite3.connect(app / "data" / "ai" / "amoxi.db")) as file:
        return file.execute(statement.format("")).fetchall()


def vectors_of(app: Path, env: Mapping[str, str]) -> set[tuple[Any, ...]]:
    """Return the vectors with the keys of their rows, which a vector that is made again does not keep."""
    return {*rows(app, env, "SELECT v.key, p.text FROM {0}passage_vector v JOIN {0}passage p ON p.key = v.passage")}


def how_many(app: Path, env: Mapping[str, str], table: str) -> int:
    [(count,)] = rows(app, env, f"SELECT count(*) FROM {{0}}{table}")
    return int(count)


def start(app: Path, env: Mapping[str, str], folder: str = "handbook") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "amoxi_py", "ingest", folder],
        cwd=app,
        env=clean_environment(env),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_killed_in_the_middle_and_started_again_nothing_is_twice_and_nothing_is_missing(
    app: Path, amoxi: Any, env: dict[str, str]
) -> None:
    book = app / "handbook"
    shutil.copytree(DOCS, book, dirs_exist_ok=True)
    all_of_it = wanted(book)
    sources = sorted({source for source, _, _ in all_of_it})
    amoxi(app, "migrate", env=env)
    seen = []
    for table, until in (("source", 5), ("source", len(sources) // 2), ("vector", 1)):
        process = start(app, env)
        try:
            while process.poll() is None and how_many(app, env, f"passage_{table}") < until:
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
        finally:
            process.kill()
            process.communicate()
        stored = kept(app, env)
        assert Counter(stored) <= Counter(all_of_it)
        for source in {source for source, _, _ in stored}:  # a file is there as a whole, or not at all
            assert [one for one in stored if one[0] == source] == [one for one in all_of_it if one[0] == source]
        seen.append(len({source for source, _, _ in stored}))
    assert 5 <= seen[0] < len(sources), "it was killed in the middle"
    assert seen[0] <= seen[1] <= seen[2] == len(sources)
    done = amoxi(app, "ingest", "handbook", "--json", env=env)
    assert done.returncode == 0, done.stderr
    assert kept(app, env) == all_of_it
    assert unembedded(app, env) == 0
    assert json.loads(done.stdout)["changed"] == []


def test_two_at_once_are_as_one(app: Path, env: dict[str, str], amoxi: Any) -> None:
    shutil.copytree(DOCS / "guides", app / "handbook", dirs_exist_ok=True)
    amoxi(app, "migrate", env=env)
    both = [start(app, env), start(app, env)]
    for process in both:
        _, told = process.communicate(timeout=60)
        assert process.returncode == 0, told
    assert kept(app, env) == wanted(app / "handbook")
    assert unembedded(app, env) == 0


def test_what_cannot_be_taken_is_told_and_the_rest_is_done(app: Path, amoxi: Any) -> None:
    book = app / "handbook"
    write(
        book,
        {
            "good.md": "Good.",
            "old.txt": "Grüße".encode("latin-1"),
            "empty.md": "\n",
            "bytes.txt": b"a\0b",
            "broken.pdf": b"%PDF-1.4 and no more",
            "\x1b[31mred\nline.md": b"\0",
            "picture.png": b"png",
            ".hidden.md": "hidden",
        },
    )
    done = amoxi(app, "ingest", "handbook")
    assert done.returncode == 0
    assert done.stdout == "docs: 2 new, 0 changed, 0 unchanged, 0 removed (2 passages)\n"
    for line in (
        "skipped: empty.md: there is nothing in it",
        "skipped: bytes.txt: it is no text: there are bytes of value 0 in it",
        "skipped: broken.pdf: it cannot be read as a PDF",
        "skipped: \\x1b[31mred",
        "note: old.txt: it is not UTF-8 (line 1) and was read as Windows-1252",
        "left out: 1 hidden files and folders",
        "left out: other kinds of files: 1 .png",
    ):
        assert line in done.stderr
    assert "\x1b" not in done.stderr
    assert "Traceback" not in done.stderr


def test_what_cannot_be_read_any_more_stays_in_the_base(app: Path, amoxi: Any) -> None:
    write(app / "handbook", {"a.md": "One.", "b.md": "Two."})
    assert amoxi(app, "ingest", "handbook").returncode == 0
    (app / "handbook" / "a.md").write_bytes(b"\0")
    assert "skipped: a.md" in amoxi(app, "ingest", "handbook").stderr
    assert kept(app, {}) == [("a.md", "", "One."), ("b.md", "", "Two.")]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("ingest",), 2, "name a FOLDER, or say --remove without one"),
        (("ingest", "handbook", "--remove"), 2, "name a FOLDER, or say --remove without one"),
        (("ingest", "nowhere"), 1, "the folder 'nowhere' cannot be read: No such file or directory"),
        (("ingest", "application.json"), 1, "'application.json' is no folder"),
        (("ingest", "handbook", "--base", ""), 1, "the name of a knowledge base"),
    ],
)
def test_a_wrong_use_is_told(app: Path, amoxi: Any, arguments: tuple[str, ...], code: int, told: str) -> None:
    answer = amoxi(app, *arguments)
    assert (answer.returncode, answer.stdout) == (code, "")
    assert told in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_folder_that_has_nothing_of_a_base_does_not_take_its_place(app: Path, amoxi: Any) -> None:
    assert amoxi(app, "ingest", "handbook").stdout.startswith("docs: 0 new")
    write(app / "handbook", {"a.md": "One."})
    assert amoxi(app, "ingest", "handbook").returncode == 0
    (app / "handbook" / "a.md").unlink()
    write(app / "other", {"b.md": "Two."})
    for folder in ("handbook", "other"):
        for options in ((), ("--dry-run",)):
            refused = amoxi(app, "ingest", folder, *options)
            assert refused.returncode == 1
            assert f"none of the 1 documents of the base 'docs' is in '{folder}'" in refused.stderr
            assert "--base" in refused.stderr
            assert "--remove" in refused.stderr
        assert kept(app, {}) == [("a.md", "", "One.")]


def test_an_embedder_that_is_away_costs_the_vectors_alone(app: Path, amoxi: Any) -> None:
    provider = StrictModelServer({}).start()
    env = {
        "AI_MEMORY_EMBEDDER": "openai:text-embedding-3-small",
        "OPENAI_BASE_URL": provider.url,
        "OPENAI_API_KEY": "sk-of-the-test",
    }
    try:
        write(app / "handbook", {"a.md": "One.", "b.md": "Two."})
        provider.embedding_failure = fail(503)
        done = amoxi(app, "ingest", "handbook", env=env)
        assert done.returncode == 1
        assert done.stdout.startswith("docs: 2 new")
        assert "found by their words only" in done.stderr
        assert "sk-of-the-test" not in done.stderr
        assert len(kept(app, {})) == 2
        provider.embedding_failure = None
        again = amoxi(app, "ingest", "handbook", env=env)
        assert (again.returncode, again.stderr) == (0, "")
        assert again.stdout.startswith("docs: 0 new, 0 changed, 2 unchanged")
        assert sorted(provider.embedded) == ["One.", "Two."]
        write(app / "handbook", {"b.md": "Three."})
        assert amoxi(app, "ingest", "handbook", env=env).returncode == 0
        assert sorted(provider.embedded) == ["One.", "Three.", "Two."], "only what changed is asked for"
    finally:
        provider.stop()


def test_without_a_terminal_long_work_tells_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress("reading", None, lines=True) as progress:
        progress.reach(1, 10)
        assert capsys.readouterr() == ("", ""), "not before ten seconds"
    monkeypatch.setattr("amoxi_py.cli.progress._LINE_EVERY_S", 0.0)
    with Progress("reading", None, lines=True) as progress:
        progress.reach(3, 10)
        assert capsys.readouterr() == ("", "reading: 3 of 10\n")
        progress.advance()
        assert capsys.readouterr() == ("", "reading: 4 of 10\n")
    with Progress("cancelling", 10) as progress:
        progress.advance()
        assert capsys.readouterr() == ("", "")
