"""X09: an old conversation of thousands of messages opens as fast as a new one, and no finished word is told again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psycopg

from amoxi_py.ports.chat_model import ModelRequest
from amoxi_py.testing import pause

RUNS = 2500
FIRST_PAGE_S = 0.5
WORDS = 200
TALKING = '''
from amoxi_py import agent


@agent(on_busy="queue")
class Talker:
    """You talk."""
'''


def cpu_s(group: int) -> float:
    """Return how much time all processes of a group have used, in seconds."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text("ascii", "replace").rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[2]) == group:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def multiply(url: str, count: int) -> None:
    """Make of the one ended run of a store as many as wanted, before it in its conversation."""
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT key, conversation, ended_seq FROM amoxi.run").fetchone()
        assert row is not None
        run, conversation, seqs = row
        step = seqs + 1
        changed = {
            "run": {
                "key": f"{run} + g.i",
                "id": "id || '_' || g.i",
                "first_seq": f"first_seq + g.i * {step}",
                "ended_seq": f"ended_seq + g.i * {step}",
            },
            "message": {"run": f"{run} + g.i", "id": "id || '_' || g.i"},
            "event": {"run": f"{run} + g.i", "seq": f"seq + g.i * {step}", "key": f"key + g.i * {step}"},
        }
        for table, its in changed.items():
            columns = [
                name
                for (name,) in connection.execute(
                    "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0",
                    (f"amoxi.{table}",),
                )
            ]
            values = ", ".join(its.get(column, column) for column in columns)
            statement = f"INSERT INTO amoxi.{table} ({', '.join(columns)}) OVERRIDING SYSTEM VALUE SELECT {values} "
            connection.execute(f"{statement} FROM amoxi.{table}, generate_series(1, {count}) g(i)")
        connection.execute(
            "UPDATE amoxi.conversation SET last_seq = last_seq + %s WHERE key = %s", (count * step, conversation)
        )
        for table in ("run", "event"):
            connection.execute(
                f"SELECT setval(pg_get_serial_sequence('amoxi.{table}', 'key'), (SELECT max(key) FROM amoxi.{table}))"
            )


def test_a_conversation_of_five_thousand_messages_opens_within_half_a_second_and_tells_no_word_again(
    field_app: Any,
    start: Any,
    client: Any,
    strict_model: Any,
    model_env: Any,
    database_env: Any,
    postgres_url: str,
    last_words: Any,
) -> None:
    def play(request: ModelRequest) -> Any:
        return [part for n in range(WORDS) for part in (f"word{n} ", pause(0.001))]

    folder = field_app(TALKING)
    env = {**model_env(strict_model(play)), **database_env(postgres_url)}
    server = start(folder, env=env)
    run = client(server).submit("talker", "talk", wait=20)
    assert run["status"] == "completed"
    server.kill9()
    multiply(postgres_url, RUNS - 1)

    server = start(folder, env=env)
    api = client(server)
    path = f"/agents/talker/conversations/{run['conversation_id']}"

    def timed(ask: Any) -> tuple[Any, float]:
        begun = cpu_s(server.pid)  # others use this machine too
        answer = ask()
        return answer, cpu_s(server.pid) - begun

    answer, took = timed(lambda: api.get_path(path))
    assert answer.status_code == 200, server.log()
    page = answer.json()
    assert took < FIRST_PAGE_S
    assert len(page["items"]) > 10
    assert page["next_cursor"]
    for ask in (
        lambda: api.get_path("/agents/talker/conversations"),
        lambda: api.get_path("/runs"),
        lambda: api.get_path(f"/runs/{run['id']}"),
        lambda: api.get_path(path, params={"cursor": page["next_cursor"]}),
    ):
        answer, took = timed(ask)
        assert answer.status_code == 200
        assert took < FIRST_PAGE_S

    with api.follow(f"{path}/events", after=page["last_event_id"]) as events:
        newer = api.submit("talker", "talk on", conversation_id=run["conversation_id"])
        first = next(events)
        assert (first.type, first.data["run_id"]) == ("run.queued", newer["id"])
        assert next(event for event in events if event.type == "run.completed").data["run_id"] == newer["id"]

    def first_event() -> Any:
        with api.follow(f"{path}/events?after=0") as events:
            return next(events)

    assert timed(first_event)[1] < FIRST_PAGE_S
    types: list[str] = []
    with api.follow(f"{path}/events?after=0") as events:
        for event in events:
            types.append(event.type)
            if event.type == "run.completed" and event.data["run_id"] == newer["id"]:
                break
    assert types.count("run.completed") == RUNS + 1
    assert types.count("message.completed") == 2 * (RUNS + 1)
    assert "message.delta" not in types
