"""Lists and progress on a terminal: whole ids at any width, nothing that anybody wrote taken as a command."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

BAR = """
import amoxi_py.cli.progress as progress

progress._QUIET_S = {quiet}
with progress.Progress("cancelling runs", 3) as bar:
    for _ in range(3):
        bar.advance()
"""


@pytest.mark.parametrize("columns", [160, 60])
def test_ids_are_whole_at_any_width_and_texts_are_no_commands(
    shop: Path, on_terminal: Any, say: Any, columns: int
) -> None:
    run = say(shop, "Cancel order A-1001 [red]\x1b[2J")
    for arguments, parts in (
        (("runs", "list"), [run["id"], "waiting", "shop"]),
        (("approvals", "list"), [run["waiting_for"][0]["call_id"], "cancel_order", "A-1001"]),
    ):
        terminal = on_terminal(shop, *arguments, columns=columns)
        assert terminal.end() == 0
        for part in parts:
            assert part in terminal.text
        assert max(map(len, terminal.text.splitlines())) <= max(columns, len(run["id"]) + 30)
    shown = on_terminal(shop, "runs", "show", run["id"], columns=columns)
    assert shown.end() == 0
    assert "[red]\\x1b[2J" in shown.text
    assert "\x1b[2J" not in shown.raw


@pytest.mark.parametrize(("quiet", "shown"), [(-1, True), (60, False)])
def test_long_work_shows_a_bar_and_short_work_does_not(
    tmp_path: Path, on_terminal: Any, quiet: int, shown: bool
) -> None:
    terminal = on_terminal(tmp_path, "-c", BAR.format(quiet=quiet), module=False)
    assert terminal.end() == 0
    assert (re.search("cancelling runs.*100%.*3/3", terminal.text, re.DOTALL) is not None) is shown
