"""Reading tables: what is told of a good one, what is said of one that cannot be read, and how much memory it takes."""

import tracemalloc
from datetime import date

import pytest
from app.tables import describe_table

from amoxi_py import ToolError
from amoxi_py.testing import tool_context

GOOD = "day;place;sold;note\n2026-03-02;Öland;3;\n2026-03-01;Ulm;4.5;rain\n\n2026-03-09;Ulm;;fair\n"


def described(content: bytes):
    return describe_table("sales.csv", tool_context(sync=True, files={"sales.csv": content}))


@pytest.mark.parametrize("content", [GOOD.encode(), GOOD.encode("utf-8-sig"), GOOD.replace(";", "\t").encode()])
def test_columns_are_told_with_their_types_and_ranges(content):
    found = described(content)
    day, place, sold, note = found.columns
    assert found.rows == 3
    assert (day.type, day.least, day.greatest) == ("date", date(2026, 3, 1), date(2026, 3, 9))
    assert (place.type, place.values) == ("text", ["Ulm", "Öland"])
    assert (sold.type, sold.least, sold.greatest, sold.empty) == ("number", 3.0, 4.5, 1)
    assert (note.values, note.empty) == (["fair", "rain"], 1)


def test_a_column_is_a_number_only_when_every_cell_is():
    (column,) = described(b"sold\n1\n2\nmany\n3\n").columns
    assert (column.type, column.least, column.values) == ("text", None, ["1", "2", "3", "many"])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "no CSV: it holds bytes that no text has"),
        ("month,sold\nJan,3\n".encode("utf-16"), "UTF-16; save it as CSV in UTF-8"),
        (b"month,sold\nM\xe4rz,3\n", r"not in UTF-8: there is a byte 0xe4"),
        (b"month,sold\n" + b"Jan,3\n" * 50_000 + b"M\xe4rz,3\n", r"not in UTF-8: there is a byte 0xe4"),
        (b"1,2,3\n4,5,6\n", "no header"),
        (b"month,sold,sold\nJan,3,4\n", "no header"),
        (b"month,,sold\nJan,3,4\n", "no header"),
        (",".join(f"c{n}" for n in range(101)).encode(), "101 columns, and 100 are the most"),
        (b"month,sold\nJan,3\nFeb\n", "line 3 has 1 cells, and there are 2 columns"),
        (b'month,sold\n"Jan,3\nFeb,4\n', "line 3: unexpected end of data"),
        (b"month,sold\nJan," + b"3" * 200_000, "field larger than field limit"),
    ],
)
def test_what_cannot_be_read_is_told_in_words(content, why):
    with pytest.raises(ToolError, match=why):
        described(content)


def test_a_table_of_20_mb_is_read_in_flat_memory():
    row = b"2026-03-01,Ulm,4.5," + b"x" * 1980 + b"\n"
    context = tool_context(sync=True, files={"sales.csv": b"day,place,sold,note\n" + row * 10_000})
    tracemalloc.start()
    found = describe_table("sales.csv", context)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.rows == 10_000
    assert peak < 3_000_000
