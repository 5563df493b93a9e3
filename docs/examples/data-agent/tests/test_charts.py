"""Charts: drawn once whatever happens, of what fits on them, and shown to nobody but who asked."""

import pytest
from app.agents import DataAgent
from app.charts import MOST_POINTS, Chart, draw_chart

from amoxi_py import ToolError
from amoxi_py.testing import ScriptedModel, call, crash, run_agent, tool_context

SALES = b"month,region,sold\nJan,North,3\nJan,South,4\nFeb,North,5\nFeb,South,none\n"


@pytest.fixture
def drawn(check_chart):
    """Draw a chart of a table, look at it, and return what the model is told."""

    def draw(content: bytes, x: str, y: str, kind: str) -> Chart:
        context = tool_context(sync=True, files={"t.csv": content})
        chart = draw_chart("t.csv", x, y, kind, context)
        check_chart(context.files_saved[chart.name])
        return chart

    return draw


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("bar", "the total of sold for each month, 2 in all; rows: 3, and 1 left out, as they have no number"),
        ("line", "sold over month; rows: 3, and 1 left out, as they have no number"),
        ("scatter", "sold over month; rows: 3, and 1 left out, as they have no number"),
    ],
)
def test_a_chart_says_what_was_drawn(drawn, kind, told):
    chart = drawn(SALES, "month", "sold", kind)
    assert (chart.name, chart.drawn) == (f"sold-by-month-{kind}.png", told)


@pytest.mark.parametrize("x", ["2026-03-{}", "{}.5"])
def test_dates_and_numbers_stand_in_their_order(drawn, x):
    rows = "".join(f"{x.format(f'{31 - n:02}')},{n}\n" for n in range(20))
    assert drawn(f"at,$ net $\n{rows}".encode(), "at", "$ net $", "line").name == "net-by-at-line.png"


def test_more_points_than_can_be_seen_are_thinned_out_and_that_is_told(drawn):
    rows = "".join(f"{n},{n % 7}\n" for n in range(4 * MOST_POINTS))
    assert drawn(f"n,sold\n{rows}".encode(), "n", "sold", "scatter").drawn.endswith("1 in 4 is drawn")


@pytest.mark.parametrize(
    ("x", "y", "kind", "why"),
    [
        ("year", "sold", "bar", "no column 'year'; its columns are: month, region, sold"),
        ("month", "region", "bar", "no row has a number there"),
    ],
)
def test_what_cannot_be_drawn_is_told(drawn, x, y, kind, why):
    with pytest.raises(ToolError, match=why):
        drawn(SALES, x, y, kind)


@pytest.mark.parametrize("kind", ["bar", "line"])
def test_too_many_texts_for_an_axis_are_told(drawn, kind):
    rows = "".join(f"name {n},1\n" for n in range(100))
    with pytest.raises(ToolError, match="more than 60"):
        drawn(f"who,sold\n{rows}".encode(), "who", "sold", kind)


def test_the_model_reads_why_a_table_is_none():
    model = ScriptedModel([call("describe_table", file_id="file_photo_csv"), "That is no table."])
    result = run_agent(DataAgent, "What is in it?", model=model, files={"photo.csv": b"\x89PNG\x00\x00"})
    assert result.call("describe_table").is_error
    assert "Export the sheet as CSV in UTF-8" in result.call("describe_table").result


def draw():
    drawing = call("draw_chart", file_id="file_sales_csv", x="month", y="sold", kind="bar")
    model = ScriptedModel([drawing, "Here it is."])
    result = run_agent(DataAgent, "Draw the sales.", model=model, files={"sales.csv": SALES})
    assert list(result.files) == ["sold-by-month-bar.png"]


def two_files(killed: crash.Killed) -> None:
    stored = [path.name for path in killed.folder.rglob("files/??/*")]
    assert len(stored) == 2, f"the table and one chart are to be kept, and not {stored!r}"


def test_a_draw_that_is_killed_leaves_one_chart():
    report = crash.at_every_step(draw, check=two_files, part=(1, 4))  # it is about the commit of the chart
    assert report.commits[4] == "save_file"
