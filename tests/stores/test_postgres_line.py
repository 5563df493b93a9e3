"""Statements sent without waiting for each: what went wrong is raised, and the line is good or gone after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from amoxi_py.stores.postgres.line import Line
from amoxi_py.stores.postgres.statements import Statement

ONE = Statement(b"SELECT $1::bigint + 1", ("n",))
TEXT = Statement(b"SELECT $1::text, $2::boolean, $3::bytea, $4::bigint[]", ("text", "flag", "bytes", "numbers"))


@pytest.fixture(params=[True, False], ids=["prepared", "plain"])
def line(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[Line]:
    made = Line(psycopg.connect(postgres_url, autocommit=True), prepares=request.param)
    yield made
    made.close()


def ask(line: Line, statement: Statement, **params: object) -> object:
    sent = line.send(statement, params)
    line.settle()
    return sent.rows


def do(line: Line, *texts: Any) -> None:
    with line.transaction():
        for text in texts:
            line.say(text + "")


def test_values_come_back_as_they_were_sent(line: Line) -> None:
    odd = 'a "quoted" \\ text, {with} NULL and ü \U0001f600'
    assert ask(line, TEXT, text=odd, flag=True, bytes=b"\0\xff", numbers=[1, 2]) == [(odd, True, b"\0\xff", "{1,2}")]
    assert ask(line, TEXT, text=None, flag=False, bytes=b"", numbers=[]) == [(None, False, b"", "{}")]


def test_what_cannot_be_stored_is_only_not_found(line: Line) -> None:
    assert ask(line, TEXT, text="a\0b\ud800", flag=None, bytes=None, numbers=None) == [("a?b?", None, None, None)]


def test_a_mistake_is_raised_and_undoes_its_transaction(line: Line) -> None:
    line.say("CREATE TABLE t (n bigint)")
    line.settle()
    with pytest.raises(psycopg.errors.DivisionByZero):
        do(line, "INSERT INTO t VALUES (1)", "SELECT 1 / 0", "INSERT INTO t VALUES (2)")
    count = line.say("SELECT count(*) FROM t")
    line.settle()
    assert count.rows == [(0,)]
    assert line.usable


def test_a_mistake_before_the_first_use_of_a_statement_does_not_lose_it(line: Line) -> None:
    """What comes behind a mistake is not prepared either: it is prepared at its next use."""
    line.say("SELECT 1 / 0")
    line.send(ONE, {"n": 1})
    with pytest.raises(psycopg.errors.DivisionByZero):
        line.settle()
    assert ask(line, ONE, n=1) == [(2,)]


def test_what_is_raised_inside_a_transaction_undoes_it(line: Line) -> None:
    with pytest.raises(TypeError):
        do(line, "CREATE TABLE t (n bigint)", None)
    do(line, "CREATE TABLE t (n bigint)")


def test_a_line_that_was_cut_is_not_usable(line: Line, postgres_url: str) -> None:
    pid = line.say("SELECT pg_backend_pid()")
    line.settle()
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", pid.rows[0])
    with pytest.raises(psycopg.OperationalError), line.transaction():
        line.send(ONE, {"n": 1})
    assert not line.usable


def test_a_server_that_only_reads_is_left(line: Line) -> None:
    """An old primary lives on as a standby: a new connection leads to the new one, this one never."""
    line.say("SET default_transaction_read_only = on")
    line.settle()
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), line.transaction():
        line.say("CREATE TABLE t (n bigint)")
    assert not line.usable
