"""What the crash tests look at from outside: recorded steps in the database, effects in the ledger."""

import json
import sqlite3
from collections import Counter
from pathlib import Path


def recorded_steps(folder: Path) -> set[tuple[str, str]]:
    """Return (call id, step name) of every step outcome that is stored."""
    if not (folder / "amoxi.db").exists():
        return set()
    with sqlite3.connect(f"file:{folder / 'amoxi.db'}?mode=ro", uri=True) as db:
        try:
            rows = db.execute(
                "SELECT run.id, step.turn, step.n, step.name FROM step JOIN run ON run.key = step.run"
            ).fetchall()
        except sqlite3.OperationalError:  # killed before the first migration
            return set()
    return {(f"call_{run[4:]}_{turn}_{n}", name) for run, turn, n, name in rows}


def effects(folder: Path) -> Counter[tuple[str, str]]:
    """Return how often each effect of each call happened."""
    ledger = folder / "ledger.jsonl"
    lines = ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else []
    return Counter((line["call"], line["what"]) for line in map(json.loads, lines))
