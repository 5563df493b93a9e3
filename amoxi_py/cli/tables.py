"""Lists on stdout: a table on a terminal, aligned plain text for a pipe; and the one JSON document for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from amoxi_py.cli.visible_text import one_line, visible, width

_READABLE = 12
_BETWEEN = 2


def print_json(value: Any) -> None:
    """Print one JSON document, in ASCII, on one line."""
    from amoxi_py.domain.encoding import encode_json  # here: with it comes what a command's help does not need

    print(encode_json(value))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, whole: Sequence[str] = ()) -> None:
    """Print rows under their columns' names.

    Args:
        columns: The names.
        rows: Texts of anybody's.
        whole: Columns that are never broken into lines, such as ids, which people copy.
    """
    if sys.stdout.isatty():
        _print_rich(columns, rows, whole)
        return
    lines = [[name.upper() for name in columns], *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(width(line[place]) for line in lines) for place in range(len(columns))]
    for line in lines:
        cells = (cell + " " * (size - width(cell)) for cell, size in zip(line, widths, strict=True))
        print("  ".join(cells).rstrip())


def print_fields(fields: Sequence[tuple[str, str]]) -> None:
    """Print names and values, one a line; further lines of a value are set in."""
    longest = max(len(name) for name, _ in fields)
    for name, value in fields:
        lines = visible(value).splitlines() or [""]
        print(f"{name:<{longest}}  {lines[0]}".rstrip())
        for line in lines[1:]:
            print(f"{'':<{longest}}  {line}".rstrip())


def _print_rich(columns: Sequence[str], rows: Sequence[Sequence[str]], whole: Sequence[str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, no_wrap=name in whole, overflow="fold", min_width=4)
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))  # as Text: what is in brackets is no markup
    console = Console(highlight=False, emoji=False, markup=False)
    if _least_width(columns, rows, whole) > console.width:  # a table that does not fit would cut its ids
        for row in rows:
            print_fields([*zip(columns, row, strict=True)])
            print()
        return
    console.print(table)


def _least_width(columns: Sequence[str], rows: Sequence[Sequence[str]], whole: Sequence[str]) -> int:
    wanted = 0
    for place, name in enumerate(columns):
        longest = max(width(visible(row[place])) for row in rows)
        wanted += max(width(name), longest if name in whole else min(longest, _READABLE)) + _BETWEEN
    return wanted
