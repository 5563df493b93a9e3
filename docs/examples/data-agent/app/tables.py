"""Tables: a CSV that a person sent, read row by row, and the tool that tells what is in it."""

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from amoxi_py import SyncToolContext, ToolError, tool

MOST_COLUMNS = 100
MOST_VALUES = 10
HEAD = 64 * 1024

FileId = Annotated[str, Field(description="The id of the file with the table, as it stands beside the message")]
Kind = Literal["number", "date", "text"]


class Table:
    """The columns of an open table, and its rows: as many cells each as there are columns."""

    def __init__(self, name: str, columns: list[str], rows: Iterator[list[str]]) -> None:
        self.name = name
        self.columns = columns
        self.rows = rows

    def place(self, column: str) -> int:
        """Return where a column stands; the model is told the columns when there is none of this name."""
        if column not in self.columns:
            raise ToolError(f"{self.name!r} has no column {column!r}; its columns are: {', '.join(self.columns)}")
        return self.columns.index(column)


@contextmanager
def open_table(file_id: str, ctx: SyncToolContext) -> Iterator[Table]:
    """Open a CSV of whoever asks; memory holds one row at a time.

    Raises:
        ToolError: it is no table that can be read; says why, so that the model can say it. Also while rows are read.
    """
    with ctx.open_file(file_id) as file:
        name, head = file.file.name, file.peek(HEAD)[:HEAD]
        if head.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise ToolError(f"{name!r} is written in UTF-16; save it as CSV in UTF-8.")
        if b"\0" in head:
            raise ToolError(f"{name!r} is no CSV: it holds bytes that no text has. Export the sheet as CSV in UTF-8.")
        text = io.TextIOWrapper(file, "utf-8-sig", newline="")
        reader = csv.reader(text, delimiter=_delimiter(head), strict=True)
        try:
            columns = [cell.strip() for cell in next(reader, [])]
            _check_header(name, columns)
            yield Table(name, columns, _rows(name, columns, reader))
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise ToolError(
                f"{name!r} is not in UTF-8: there is a byte {byte:#04x} after line {reader.line_num}. "
                "It may be in an older encoding such as Windows-1252; save it as CSV in UTF-8."
            ) from error
        except csv.Error as error:
            raise ToolError(f"{name!r} is no CSV that can be read: line {reader.line_num}: {error}.") from error


def _delimiter(head: bytes) -> str:
    first = head.splitlines()[0] if head else b""
    return max(",;\t", key=lambda mark: first.count(mark.encode()))


def _check_header(name: str, columns: list[str]) -> None:
    if not any(columns):
        raise ToolError(f"{name!r} is empty: its first line must name the columns.")
    if len(columns) > MOST_COLUMNS:
        raise ToolError(f"{name!r} has {len(columns)} columns, and {MOST_COLUMNS} are the most that can be read.")
    if len(set(columns)) < len(columns) or not all(map(_is_name, columns)):
        raise ToolError(
            f"{name!r} has no header: its first line must give each column a name of its own, no number but a year."
        )


def _is_name(cell: str) -> bool:
    return bool(cell) and (kind_of(cell) == "text" or (len(cell) == 4 and cell.isdigit()))  # such as the year 2026


def _rows(name: str, columns: list[str], reader: Iterator[list[str]]) -> Iterator[list[str]]:
    for row in reader:
        if not row:  # an empty line
            continue
        if len(row) != len(columns):
            raise ToolError(
                f"{name!r}: line {reader.line_num} has {len(row)} cells, and there are {len(columns)} columns."
            )
        yield row


def number_of(cell: str) -> float | None:
    """Return the number that a cell holds, or None."""
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None  # `nan` and `inf` are words


def kind_of(cell: str) -> Kind:
    """Return what a cell holds."""
    if number_of(cell) is not None:
        return "number"
    try:
        date.fromisoformat(cell.strip())
    except ValueError:
        return "text"
    return "date"


class Column(BaseModel):
    """What is in a column: `least` and `greatest` of numbers and dates, the `values` of a text that has few."""

    name: str
    type: Kind
    empty: int = 0
    least: float | date | None = None
    greatest: float | date | None = None
    values: list[str] | None = None


class Description(BaseModel):
    """What is in a table."""

    name: str
    rows: int
    columns: list[Column]


class Survey:
    """What is known of a column so far: it is a number or a date for as long as each cell is one."""

    def __init__(self) -> None:
        self.kind: Kind | None = None
        self.empty = 0
        self.range: tuple[float | date, float | date] | None = None
        self.values: set[str] = set()

    def add(self, cell: str) -> None:
        """Look at one more cell."""
        if not cell.strip():
            self.empty += 1
            return
        if len(self.values) <= MOST_VALUES:
            self.values.add(cell)
        if self.kind == "text":
            return
        kind = kind_of(cell)
        if kind != (self.kind or kind) or kind == "text":
            self.kind, self.range = "text", None
            return
        self.kind = kind
        value = float(cell) if kind == "number" else date.fromisoformat(cell.strip())
        least, greatest = self.range or (value, value)
        self.range = min(least, value), max(greatest, value)

    def column(self, name: str) -> Column:
        """Return what was found."""
        kind = self.kind or "text"
        few = sorted(self.values) if kind == "text" and len(self.values) <= MOST_VALUES else None
        least, greatest = self.range or (None, None)
        return Column(name=name, type=kind, empty=self.empty, least=least, greatest=greatest, values=few)


@tool(read_only=True)
def describe_table(file_id: FileId, ctx: SyncToolContext) -> Description:
    """Describe a table: its columns with their types and ranges, and how many rows it has."""
    with open_table(file_id, ctx) as table:
        surveys = [Survey() for _ in table.columns]
        rows = 0
        for row in table.rows:
            rows += 1
            for survey, cell in zip(surveys, row, strict=True):
                survey.add(cell)
            if rows % 10_000 == 0:
                ctx.signal.raise_if_cancelled()
        columns = [survey.column(name) for name, survey in zip(table.columns, surveys, strict=True)]
        return Description(name=table.name, rows=rows, columns=columns)
