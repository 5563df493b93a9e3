"""The same texts in every layout of a docstring; what cannot be read, or tells of nothing, is warned about."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from amoxi_py import tool
from amoxi_py.declare.definitions import ToolDefinition

ToolOf = Callable[[Any], ToolDefinition]

DESCRIPTION = "Refund an order.\n\nIt tells the customer: see https://example.org/refunds for the rules."
ORDER = "The order's number: see https://example.org, e.g. A-1001"
COLOR = "Größe und Farbe, one of\n- red: warm\n- blue: cold\n  and calm\n\nor nothing"

LAYOUTS = {
    "google": """Refund an order.

    It tells the customer: see https://example.org/refunds for the rules.

    Args:
        order_id: The order's number: see https://example.org, e.g. A-1001
        color: Größe und Farbe, one of
            - red: warm
            - blue: cold
              and calm

            or nothing

    Returns:
        The refund: its id.

    Raises:
        ToolError: it was refunded before.
    """,
    "google with types": """Refund an order.

    It tells the customer: see https://example.org/refunds for the rules.

    Args:
        order_id (str): The order's number: see https://example.org, e.g. A-1001
        color (str, optional): Größe und Farbe, one of
            - red: warm
            - blue: cold
              and calm

            or nothing
    """,
    "google, no blank line before": """Refund an order.

    It tells the customer: see https://example.org/refunds for the rules.
    Args:
        order_id: The order's number: see https://example.org, e.g. A-1001
        color: Größe und Farbe, one of
            - red: warm
            - blue: cold
              and calm

            or nothing
    Returns:
        The refund.
    """,
    "google, blank line after": """Refund an order.

    It tells the customer: see https://example.org/refunds for the rules.

    Args:

        order_id: The order's number: see https://example.org, e.g. A-1001

        color: Größe und Farbe, one of
            - red: warm
            - blue: cold
              and calm

            or nothing
    """,
    "google, keyword section": """Refund an order.

    It tells the customer: see https://example.org/refunds for the rules.

    Args:
        order_id: The order's number: see https://example.org, e.g. A-1001

    Returns:
        The refund.

    Keyword Args:
        color: Größe und Farbe, one of
            - red: warm
            - blue: cold
              and calm

            or nothing
    """,
    "google, text on the next line": """Refund an order.

    It tells the customer: see https://example.org/refunds for the rules.

    Arguments:
        order_id:
            The order's number: see https://example.org, e.g. A-1001
        color:
            Größe und Farbe, one of
            - red: warm
            - blue: cold
              and calm

            or nothing
    """,
    "google, text after the section": """Refund an order.

    Args:
        order_id: The order's number: see https://example.org, e.g. A-1001
        color: Größe und Farbe, one of
            - red: warm
            - blue: cold
              and calm

            or nothing

    It tells the customer: see https://example.org/refunds for the rules.
    """,
    "google, tabs": "Refund an order.\n\n\tIt tells the customer: see https://example.org/refunds for the rules.\n\n"
    "\tArgs:\n\t\torder_id: The order's number: see https://example.org, e.g. A-1001\n"
    "\t\tcolor: Größe und Farbe, one of\n"
    "\t\t\t- red: warm\n\t\t\t- blue: cold\n\t\t\t  and calm\n\t\t\t\n\t\t\tor nothing\n\t",
    "numpy": """Refund an order.

    It tells the customer: see https://example.org/refunds for the rules.

    Parameters
    ----------
    order_id : str
        The order's number: see https://example.org, e.g. A-1001
    color : str, optional
        Größe und Farbe, one of
        - red: warm
        - blue: cold
          and calm

        or nothing

    Returns
    -------
    str
        The refund.
    """,
    "numpy, no types, short underline": """Refund an order.

    It tells the customer: see https://example.org/refunds for the rules.

    Parameters
    ---
    order_id
        The order's number: see https://example.org, e.g. A-1001

    Other Parameters
    ------------------
    color
        Größe und Farbe, one of
        - red: warm
        - blue: cold
          and calm

        or nothing
    """,
    "rest": """Refund an order.

    It tells the customer: see https://example.org/refunds for the rules.

    :param order_id: The order's number: see https://example.org, e.g. A-1001
    :param color: Größe und Farbe, one of
        - red: warm
        - blue: cold
          and calm

        or nothing
    :returns: The refund.
    :raises ToolError: it was refunded before.
    """,
    "rest with types, text after": """Refund an order.

    :param str order_id: The order's number: see https://example.org, e.g. A-1001
    :param dict[str, int] color: Größe und Farbe, one of
        - red: warm
        - blue: cold
          and calm

        or nothing
    :type color: str
    :rtype: str

    It tells the customer: see https://example.org/refunds for the rules.
    """,
}


@pytest.mark.parametrize("docstring", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_texts_are_the_same_in_every_layout(tool_of: ToolOf, caplog: pytest.LogCaptureFixture, docstring: str) -> None:
    def refund(order_id: str, *, color: str = "red") -> str:
        return ""

    refund.__doc__ = docstring
    definition = tool_of(tool(refund))
    assert definition.description == DESCRIPTION
    assert definition.parameters["properties"]["order_id"]["description"] == ORDER
    assert definition.parameters["properties"]["color"]["description"] == COLOR
    assert caplog.messages == []


@pytest.mark.parametrize(
    "docstring",
    ["Args:\n    x: The number\n", "Parameters\n----------\nx : int\n    The number\n", ":param x: The number"],
)
def test_a_docstring_without_a_summary_keeps_its_parameter_texts(tool_of: ToolOf, docstring: str) -> None:
    def f(x: int) -> None: ...

    f.__doc__ = docstring
    definition = tool_of(tool(f))
    assert definition.description == ""
    assert definition.parameters["properties"]["x"]["description"] == "The number"


def test_no_docstring_gives_no_texts(tool_of: ToolOf) -> None:
    @tool
    def f(x: int) -> None: ...

    assert tool_of(f).description == ""
    assert tool_of(f).parameters["properties"]["x"] == {"type": "integer"}


def test_a_documented_name_that_is_no_parameter_is_warned_about(
    tool_of: ToolOf, caplog: pytest.LogCaptureFixture
) -> None:
    @tool
    def f(order: int) -> None:
        """Do it.

        Args:
            order: The number
            oder: A slip
        """

    with caplog.at_level(logging.WARNING):
        assert tool_of(f).description == "Do it."
    [message] = caplog.messages
    assert "tool 'f'" in message
    assert "'oder'" in message


@pytest.mark.parametrize(
    "docstring",
    [
        "Do it.\n\nArgs:\n    the number without a colon\n",
        "Do it.\n\nargs:\n    order: The number\n",
        "Do it.\n\n    Args:\n    order: The number\n",
        "Do it.\n\nParameters:\n\n",
        "Do it.\n\n@param order The number",
    ],
)
def test_a_section_that_cannot_be_read_is_warned_about(
    tool_of: ToolOf, caplog: pytest.LogCaptureFixture, docstring: str
) -> None:
    def f(order: int) -> None: ...

    f.__doc__ = docstring
    with caplog.at_level(logging.WARNING):
        assert tool_of(tool(f)).description.startswith("Do it.")
    [message] = caplog.messages
    assert "tool 'f'" in message
    assert "read" in message


def test_several_names_of_one_text_all_get_it(tool_of: ToolOf) -> None:
    @tool
    def f(x: int, y: int) -> None:
        """Do it.

        Parameters
        ----------
        x, y : int
            The place
        """

    properties = tool_of(f).parameters["properties"]
    assert properties["x"]["description"] == properties["y"]["description"] == "The place"
