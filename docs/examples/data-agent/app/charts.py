"""Charts: two columns of a table as a picture, which the person who asked can open."""

import io
import logging
import re
import threading
from datetime import date
from typing import Annotated, Literal

import matplotlib
from matplotlib.figure import Figure
from pydantic import BaseModel, Field

from amoxi_py import SyncToolContext, ToolError, tool

from .tables import FileId, Table, kind_of, number_of, open_table

MOST_GROUPS = 60
MOST_POINTS = 5_000

# A figure that is made without `pyplot` draws on Agg, needs no screen, and is gone with its last reference. One is
# drawn at a time: matplotlib shares fonts between threads without a lock.
DRAWING = threading.Lock()
matplotlib.rcParams["text.parse_math"] = False  # a column may be called `$ net $`
logging.getLogger("matplotlib").setLevel(logging.WARNING)  # it tells of months that they could be dates


class Chart(BaseModel):
    """A chart that was drawn and saved."""

    file_id: str
    name: str
    drawn: str


class Points:
    """What is drawn: for bars the total of each group, else the points, of which no more are kept than can be seen."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.groups: dict[str, float] = {}
        self.points: list[tuple[str, float]] = []
        self.rows = 0
        self.left_out = 0
        self.every = 1

    def add(self, x: str, y: str) -> None:
        """Take a row; one without a number to draw is counted as left out."""
        height = number_of(y)
        if height is None or not x.strip():
            self.left_out += 1
            return
        self.rows += 1
        if self.kind == "bar":
            self.groups[x] = self.groups.get(x, 0.0) + height
            if len(self.groups) > MOST_GROUPS:
                raise ToolError(f"There are more than {MOST_GROUPS} groups, too many bars; draw a line or a scatter.")
        elif self.rows % self.every == 0:
            self.points.append((x, height))
            if len(self.points) > MOST_POINTS:
                self.points, self.every = self.points[1::2], self.every * 2

    def axes(self) -> tuple[list[float] | list[date] | list[str], list[float]]:
        """Return what stands at the two axes: numbers and dates as such, in their order, when all are."""
        pairs = list(self.groups.items()) if self.kind == "bar" else self.points
        if not pairs:
            raise ToolError("There is nothing to draw: no row has a number there.")
        labels = [x for x, _ in pairs]
        kinds = {kind_of(x) for x in labels}
        if self.kind == "bar" or len(kinds) > 1 or kinds == {"text"}:
            if len(set(labels)) > MOST_GROUPS:
                raise ToolError(
                    f"There are more than {MOST_GROUPS} different texts along the x axis, too many to read."
                )
            return labels, [y for _, y in pairs]
        read = float if kinds == {"number"} else lambda cell: date.fromisoformat(cell.strip())
        ordered = sorted((read(x), y) for x, y in pairs)
        return [x for x, _ in ordered], [y for _, y in ordered]

    def told(self, x: str, y: str) -> str:
        """Return in words what was drawn."""
        what = f"the total of {y} for each {x}, {len(self.groups)} in all" if self.kind == "bar" else f"{y} over {x}"
        drawn = f"{what}; rows: {self.rows}"
        drawn += f", of which 1 in {self.every} is drawn" if self.every > 1 else ""
        return drawn + (f", and {self.left_out} left out, as they have no number" if self.left_out else "")


@tool(idempotent=True, timeout=120)
def draw_chart(
    file_id: FileId,
    x: Annotated[str, Field(description="The column along the bottom")],
    y: Annotated[str, Field(description="The column of numbers that is drawn")],
    kind: Annotated[Literal["bar", "line", "scatter"], Field(description="The kind of chart")],
    ctx: SyncToolContext,
) -> Chart:
    """Draw a chart of two columns of a table; the person is shown it."""
    with open_table(file_id, ctx) as table:
        points = _read(table, table.place(x), table.place(y), kind, ctx)
    ctx.progress("Drawing...")
    with DRAWING:
        png = _draw(points, x, y)
    # The name is made of the arguments alone: when the call runs again, the file it has saved is found by it.
    file = ctx.save_file(f"{_plain(y)}-by-{_plain(x)}-{kind}.png", png, media_type="image/png")
    return Chart(file_id=file.id, name=file.name, drawn=points.told(x, y))


def _read(table: Table, x: int, y: int, kind: str, ctx: SyncToolContext) -> Points:
    points = Points(kind)
    for row in table.rows:
        points.add(row[x], row[y])
        if points.rows % 10_000 == 0:
            ctx.signal.raise_if_cancelled()
    return points


def _draw(points: Points, x: str, y: str) -> bytes:
    figure = Figure(figsize=(8, 4.5), dpi=100, layout="constrained")
    axes = figure.subplots()
    across, heights = points.axes()
    if points.kind == "bar":
        axes.bar(across, heights)
    elif points.kind == "line":
        axes.plot(across, heights)
    else:
        axes.scatter(across, heights, s=12)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(axis="y", alpha=0.3)
    if isinstance(across[0], str) and len(across) > 8:
        axes.tick_params(axis="x", labelrotation=90)
    png = io.BytesIO()
    figure.savefig(png, format="png")
    return png.getvalue()


def _plain(column: str) -> str:
    return re.sub(r"\W+", "-", column).strip("-").lower() or "column"
