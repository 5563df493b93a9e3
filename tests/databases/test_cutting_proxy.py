"""The line that tests cut: a commit lands or does not, as asked, and its client cannot tell which."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from cutting_proxy import Door, cutting_proxy

Client = psycopg.Connection[Any]


def one_by_one(client: Client) -> None:
    client.execute("INSERT INTO kept VALUES (1)")
    client.commit()


def in_one_message(client: Client) -> None:
    client.execute("INSERT INTO kept VALUES (1); COMMIT")


def in_a_pipeline(client: Client) -> None:
    with client.pipeline():
        client.execute("INSERT INTO kept VALUES (%s)", [1])
        client.commit()


def prepared(client: Client) -> None:
    client.autocommit = True
    for statement in ("BEGIN", "INSERT INTO kept VALUES (1)", "COMMIT"):
        client.execute(statement, prepare=True)


def prepared_before(client: Client) -> None:
    """The statement was taken by the server long before it is run."""
    client.autocommit = True
    client.pgconn.prepare(b"end", b"COMMIT")
    client.execute("BEGIN")
    client.execute("INSERT INTO kept VALUES (1)")
    result = client.pgconn.exec_prepared(b"end", [])
    if result.status == psycopg.pq.ExecStatus.FATAL_ERROR:
        raise psycopg.OperationalError(result.get_error_message())


WAYS = [one_by_one, in_one_message, in_a_pipeline, prepared, prepared_before]


@pytest.fixture
def direct(postgres_url: str) -> Iterator[Client]:
    with psycopg.connect(postgres_url, autocommit=True) as client:
        client.execute("CREATE TABLE kept (n int)")
        yield client


@pytest.fixture
def door(postgres_url: str) -> Iterator[Door]:
    with cutting_proxy(postgres_url) as proxy:
        yield proxy.door()


def kept(direct: Client) -> int:
    return len(direct.execute("SELECT * FROM kept").fetchall())


@pytest.mark.parametrize("commit", WAYS)
def test_a_commit_lands_whose_answer_is_lost(
    door: Door, direct: Client, postgres_url: str, commit: Callable[[Client], None]
) -> None:
    door.lose_answer()
    with psycopg.connect(door.url(postgres_url)) as client, pytest.raises(psycopg.OperationalError):
        commit(client)
    assert kept(direct) == 1
    with psycopg.connect(door.url(postgres_url)) as client:
        commit(client)
    assert kept(direct) == 2
    assert door.commits >= 2


@pytest.mark.parametrize("commit", WAYS)
def test_a_commit_that_the_server_does_not_hear_of_undoes_its_transaction(
    door: Door, direct: Client, postgres_url: str, commit: Callable[[Client], None]
) -> None:
    door.lose_commit()
    with psycopg.connect(door.url(postgres_url)) as client, pytest.raises(psycopg.OperationalError):
        commit(client)
    assert kept(direct) == 0
    with psycopg.connect(door.url(postgres_url)) as client:
        commit(client)
    assert kept(direct) == 1


def test_readers_and_what_notifies_keep_their_commits(door: Door, direct: Client, postgres_url: str) -> None:
    with psycopg.connect(door.url(postgres_url), prepare_threshold=0) as client:
        one_by_one(client)
        door.lose_answer()
        door.lose_commit()
        client.execute("SELECT * FROM kept")
        client.commit()
        client.execute("SELECT pg_notify('x', 'y')")
        client.commit()
        with pytest.raises(psycopg.OperationalError):
            one_by_one(client)
    assert kept(direct) == 1


def test_a_shut_door_cuts_what_is_there_and_what_comes_until_it_opens(door: Door, postgres_url: str) -> None:
    with psycopg.connect(door.url(postgres_url)) as client:
        door.shut()
        with pytest.raises(psycopg.OperationalError):
            client.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(door.url(postgres_url))
    door.open()
    with psycopg.connect(door.url(postgres_url)) as client:
        assert client.execute("SELECT 1").fetchone() == (1,)


def test_what_is_held_comes_later(door: Door, direct: Client, postgres_url: str) -> None:
    with psycopg.connect(door.url(postgres_url), autocommit=True) as client, ThreadPoolExecutor() as threads:
        door.hold()
        try:
            inserted = threads.submit(client.execute, "INSERT INTO kept VALUES (1)")
            with pytest.raises(TimeoutError):
                inserted.result(0.3)
            assert kept(direct) == 0
        finally:
            door.release()
        inserted.result(10)
        assert kept(direct) == 1


def test_large_rows_and_copies_and_cancelling_go_through(door: Door, postgres_url: str) -> None:
    text = "x" * 3_000_000
    with psycopg.connect(door.url(postgres_url)) as client:
        assert client.execute("SELECT %s", [text]).fetchone() == (text,)
        client.execute("CREATE TABLE texts (text text)")
        with client.cursor().copy("COPY texts FROM STDIN") as copy:
            copy.write_row([text])
        assert client.execute("SELECT length(text) FROM texts").fetchone() == (3_000_000,)
        threading.Timer(0.1, client.cancel_safe).start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            client.execute("SELECT pg_sleep(30)")


def test_doors_are_cut_one_by_one(postgres_url: str) -> None:
    with cutting_proxy(postgres_url) as proxy:
        ours, others = proxy.door(), proxy.door()
        with psycopg.connect(others.url(postgres_url)) as other:
            ours.shut()
            ours.lose_answer()
            other.execute("SELECT 1")
            other.commit()
