"""What all tests share: a folder of its own for each, and a look at a chart."""

import io
from collections.abc import Callable

import pytest
from PIL import Image


@pytest.fixture(autouse=True)
def own_folder(amoxi_folder):
    """Make a new folder the current one, with the settings of `application.json`."""


@pytest.fixture
def check_chart() -> Callable[[bytes], None]:
    """Check that these bytes are a picture on which something is drawn."""

    def check(content: bytes) -> None:
        chart = Image.open(io.BytesIO(content))
        assert (chart.format, chart.size) == ("PNG", (800, 450))
        assert len(chart.convert("RGB").getcolors(1_000_000)) > 10

    return check
