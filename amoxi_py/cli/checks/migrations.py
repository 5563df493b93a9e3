"""How far a store of either kind has been brought up to date."""

from __future__ import annotations

from collections.abc import Sequence

from amoxi_py.cli.checks.finding import Finding


def tell_migrations(missing: Sequence[str], newer: Sequence[int]) -> Finding:
    """Say which migrations the next start makes, and whether a newer version has made some."""
    if missing:
        text = f"migrations that the next start makes: {', '.join(missing)}"
        return Finding(
            check="migrations", level="note", text=text, fix="nothing; or amoxi migrate as a step of its own"
        )
    if newer:
        return Finding(
            check="migrations",
            level="warning",
            text=f"a newer version of amoxi_py has changed the store (migration {newer[-1]})",
            fix="go back to the newer version soon; this one uses what it knows",
        )
    return Finding(check="migrations", level="ok", text="the store is up to date")
