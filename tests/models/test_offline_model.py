"""The offline model picks tools and fills arguments by the schema alone, for the template's tools and any others."""

from __future__ import annotations

import asyncio
import json
from datetime import date
from typing import Any

import pytest

from amoxi_py.models.offline import OfflineModel
from amoxi_py.models.offline.words import humanise, stem
from amoxi_py.ports.chat_model import (
    AssistantMessage,
    ModelMessage,
    ModelRequest,
    Reply,
    TextDelta,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from amoxi_py.testing import ScriptedModel

Calls = list[tuple[str, dict[str, Any]]]


def a_tool(
    name: str,
    description: str,
    required: dict[str, Any] | None = None,
    optional: dict[str, Any] | None = None,
    **more: Any,
) -> ToolSpec:
    properties = {**(required or {}), **(optional or {})}
    parameters = {"type": "object", "properties": properties, "required": list(required or {}), **more}
    return ToolSpec(name=name, description=description, parameters=parameters)


TEXT = {"type": "string"}
ORDER = {"order_id": {"type": "string", "pattern": r"^A-\d{4}$", "description": "The order number, e.g. A-1001"}}
SHOP = (
    a_tool("lookup_order", "Look up an order.", ORDER),
    a_tool("refund_order", "Refund an order and email the customer a receipt.", ORDER),
    a_tool("cancel_order", "Cancel an order that is not shipped yet.", ORDER),
)
NOTES = (a_tool("list_notes", "List all notes."), a_tool("add_note", "Add a note.", {"text": TEXT}))
LIBRARY = (
    a_tool(
        "search_books",
        "Find books by title or author.",
        {"query": {**TEXT, "description": "Words of the title or the author's name"}},
        {"limit": {"type": "integer", "minimum": 1}},
    ),
    a_tool("borrow_book", "Lend a book to a reader.", {"title": TEXT}, {"weeks": {"type": "integer", "maximum": 8}}),
    a_tool("return_book", "Take a book back.", {"title": TEXT}),
    a_tool("my_loans", "Show what the reader has at home."),
)
ROOM = {"enum": ["kitchen", "living_room", "bedroom"], "type": "string"}
HEATING = (
    a_tool("get_temperature", "Read the temperature of a room.", {"room": ROOM}),
    a_tool(
        "set_temperature",
        "Set the temperature of a room.",
        {"room": {"$ref": "#/$defs/Room"}, "degrees": {"type": "number", "minimum": 5, "maximum": 30}},
        **{"$defs": {"Room": ROOM}},
    ),
    a_tool("set_mode", "Switch the heating to another mode.", {"mode": {"enum": ["heat", "cool", "off"]}}),
)
TRAVEL = (
    a_tool(
        "book_trip",
        "Book a trip.",
        {"city": TEXT, "day": {"type": "string", "format": "date"}, "guests": {"type": "integer", "minimum": 1}},
        {
            "breakfast": {"type": "boolean"},
            "email": {"anyOf": [{"type": "string", "format": "email"}, {"type": "null"}]},
        },
    ),
)


def reply_to(tools: tuple[ToolSpec, ...], *messages: ModelMessage) -> Reply:
    async def last() -> TextDelta | Reply:
        model = OfflineModel(pause=0, today=lambda: date(2026, 11, 29))
        request = ModelRequest(instructions="Be kind.", messages=messages, tools=tools)
        return [item async for item in model.stream(request)][-1]

    reply = asyncio.run(last())
    assert isinstance(reply, Reply)
    return reply


def calls_for(tools: tuple[ToolSpec, ...], text: str) -> Calls:
    reply = reply_to(tools, UserMessage(text=text))
    return [(call.name, json.loads(call.arguments)) for call in reply.calls]


TABLES = (
    a_tool("describe_table", "Describe a table.", {"file_id": TEXT}),
    a_tool("compare_tables", "Compare two tables.", {"old_file_id": TEXT, "new_file_id": TEXT}),
)
OLD = UserMessage(text="Here it is.", notes=("[file file_a1: 'old.csv', text/csv, 9 bytes]",))
NEW = UserMessage(text="Describe this table", notes=("[file file_b2: 'new.csv', text/csv, 9 bytes]",))
SEEN = AssistantMessage(text="I see.")


@pytest.mark.parametrize(
    ("messages", "tool", "files"),
    [
        ([NEW], "describe_table", {"file_id": "file_b2"}),
        ([OLD, SEEN, UserMessage(text="Describe the table")], "describe_table", {"file_id": "file_a1"}),
        ([OLD, SEEN, UserMessage(text="Describe the table file_c3")], "describe_table", {"file_id": "file_c3"}),
        (
            [OLD, SEEN, NEW, SEEN, UserMessage(text="Compare the tables")],
            "compare_tables",
            {"old_file_id": "file_b2", "new_file_id": "file_a1"},
        ),
    ],
)
def test_a_tool_that_wants_a_file_gets_the_one_that_was_sent_last(
    messages: list[ModelMessage], tool: str, files: dict[str, str]
) -> None:
    (call,) = reply_to(TABLES, *messages).calls
    assert (call.name, json.loads(call.arguments)) == (tool, files)


def test_a_file_that_nobody_sent_is_asked_for() -> None:
    assert reply_to(TABLES, UserMessage(text="Describe the table")).calls == ()


def answer_to(tool: str, content: str, *, is_error: bool = False, tools: tuple[ToolSpec, ...] = SHOP) -> str:
    """Return what the model says after one call of a tool gave this result."""
    user = UserMessage(text="Refund order A-1001")
    asks = AssistantMessage(text="", calls=reply_to(SHOP, user).calls[:1])
    result = ToolResult(call_id=asks.calls[0].id, tool=tool, content=content, is_error=is_error)
    return reply_to(tools, user, asks, result).text


CHOICES: list[tuple[tuple[ToolSpec, ...], str, Calls]] = [
    (SHOP, "Where is order A-1001?", [("lookup_order", {"order_id": "A-1001"})]),
    (SHOP, "Refund order A-1001", [("refund_order", {"order_id": "A-1001"})]),
    (SHOP, "Cancel order A-1002", [("cancel_order", {"order_id": "A-1002"})]),
    (SHOP, "can you please cancel a-1002?", [("cancel_order", {"order_id": "A-1002"})]),
    (SHOP, "Was order A-1001 refunded?", [("lookup_order", {"order_id": "A-1001"})]),
    (SHOP, "A-1001", [("lookup_order", {"order_id": "A-1001"})]),
    (SHOP, "Look up A-1001 and A-1002", [("lookup_order", {"order_id": f"A-100{n}"}) for n in (1, 2)]),
    (
        SHOP,
        "Refund A-1001, then cancel A-1002",
        [("refund_order", {"order_id": "A-1001"}), ("cancel_order", {"order_id": "A-1002"})],
    ),
    (NOTES, "What are my notes?", [("list_notes", {})]),
    (NOTES, "List my notes", [("list_notes", {})]),
    (NOTES, "Add a note: buy milk", [("add_note", {"text": "buy milk"})]),
    (NOTES, "add a note to buy milk and bread", [("add_note", {"text": "buy milk and bread"})]),
    (NOTES, "Note: buy milk", [("add_note", {"text": "buy milk"})]),
    (NOTES, "Add a note: list all my orders; show them", [("add_note", {"text": "list all my orders; show them"})]),
    (NOTES, 'Please add the note "call Ann: 5pm"', [("add_note", {"text": "call Ann: 5pm"})]),
    (LIBRARY, "Do you have books by Ursula Le Guin?", [("search_books", {"query": "Ursula Le Guin"})]),
    (LIBRARY, "search for dune, limit 5", [("search_books", {"query": "dune", "limit": 5})]),
    (LIBRARY, "Borrow Dune", [("borrow_book", {"title": "Dune"})]),
    (
        LIBRARY,
        "I'd like to borrow 'The Dispossessed' for three weeks",
        [("borrow_book", {"title": "The Dispossessed", "weeks": 3})],
    ),
    (LIBRARY, "Borrow Dune and return Emma", [("borrow_book", {"title": "Dune"}), ("return_book", {"title": "Emma"})]),
    (LIBRARY, "What are my loans?", [("my_loans", {})]),
    (HEATING, "What is the temperature in the kitchen?", [("get_temperature", {"room": "kitchen"})]),
    (HEATING, "Set the kitchen to 21.5 degrees", [("set_temperature", {"room": "kitchen", "degrees": 21.5})]),
    (HEATING, "Set the living room's temperature to 21", [("set_temperature", {"room": "living_room", "degrees": 21})]),
    (HEATING, "Switch the heating off", [("set_mode", {"mode": "off"})]),
    (
        TRAVEL,
        "Book a trip to Porto on 2026-12-24 for 2 guests without breakfast, mail to ann@example.org",
        [
            (
                "book_trip",
                {"city": "Porto", "day": "2026-12-24", "guests": 2, "breakfast": False, "email": "ann@example.org"},
            )
        ],
    ),
    (
        TRAVEL,
        "Book a trip to Porto tomorrow for 2",
        [("book_trip", {"city": "Porto", "day": "2026-11-30", "guests": 2})],
    ),
]


@pytest.mark.parametrize(("tools", "text", "calls"), CHOICES, ids=[text for _, text, _ in CHOICES])
def test_a_message_becomes_the_calls_that_its_words_ask_for(
    tools: tuple[ToolSpec, ...], text: str, calls: Calls
) -> None:
    assert calls_for(tools, text) == calls


@pytest.mark.parametrize("text", ["Hello", "Delete my notes", "What is the meaning of life?"])
def test_when_nothing_fits_it_says_so_and_what_it_can_do(text: str) -> None:
    reply = reply_to(NOTES, UserMessage(text=text))
    assert reply.calls == ()
    assert reply.text.splitlines()[1:] == ["- List notes: List all notes.", "- Add note: Add a note."]


def test_without_tools_it_says_that_it_is_offline() -> None:
    assert "offline model" in reply_to((), UserMessage(text="Hello")).text


def test_what_is_required_and_not_said_is_asked_for_by_its_name_and_description() -> None:
    asked = reply_to(SHOP, UserMessage(text="Refund my order"))
    assert asked.calls == ()
    assert asked.text == 'I need one more thing for "Refund order": order ID (The order number, e.g. A-1001).'


def test_a_value_outside_of_its_bounds_is_not_taken() -> None:
    asked = reply_to(HEATING, UserMessage(text="Set the temperature to 50 in the kitchen"))
    assert (asked.calls, "degrees" in asked.text) == ((), True)


def test_the_answer_to_its_question_completes_what_was_asked_for() -> None:
    first = UserMessage(text="Refund my order")
    question = AssistantMessage(text=reply_to(SHOP, first).text)
    reply = reply_to(SHOP, first, question, UserMessage(text="It is A-1001"))
    assert [(call.name, call.arguments) for call in reply.calls] == [("refund_order", '{"order_id": "A-1001"}')]


def test_an_object_is_told_field_by_field() -> None:
    order = '{"id": "A-1001", "item": "Trail backpack, 28 L", "status": "shipped"}'
    assert answer_to("lookup_order", order) == (
        "Here's what I found:\nID: A-1001\nItem: Trail backpack, 28 L\nStatus: shipped"
    )


def test_what_was_done_is_told_with_its_fields() -> None:
    assert answer_to("refund_order", '{"refund_id":"R-1","emailed":true}') == "Done:\nRefund ID: R-1\nEmailed: yes"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Sunny, 21 degrees.", "Sunny, 21 degrees."),
        ('"Sunny."', "Sunny."),
        ("[]", "I found nothing."),
        ("null", "I found nothing."),
        ("42", "42"),
        ('["milk", "bread"]', "Here's what I found:\n- milk\n- bread"),
        ('{"notes": []}', "Here's what I found:\nNotes: nothing found"),
        ('{"result": ["milk"]}', "Here's what I found:\n- milk"),
        (
            '{"reader": {"name": "Ann"}, "loans": [{"title": "Dune", "late": false}], "fee": null}',
            "Here's what I found:\nReader:\n  Name: Ann\nLoans:\n- Title: Dune\n  Late: no\nFee: none",
        ),
    ],
)
def test_results_of_any_shape_are_told_as_a_person_reads_them(content: str, text: str) -> None:
    assert answer_to("lookup_order", content) == text


def test_a_long_list_is_told_in_part() -> None:
    text = answer_to("lookup_order", json.dumps(list(range(50))))
    assert text.splitlines()[-2:] == ["- 19", "... and 30 more"]


def test_a_declined_action_is_told_as_it_is() -> None:
    assert (
        answer_to("cancel_order", "The person declined this action.", is_error=True)
        == "That didn't work: The person declined this action."
    )


def test_an_unknown_outcome_is_neither_called_done_nor_failed() -> None:
    text = answer_to("refund_order", "The outcome is unknown: the action was interrupted.", is_error=True)
    assert text.startswith("I don't know whether that was done.")
    assert "Done:" not in text
    assert "didn't work" not in text


def test_several_results_are_told_in_order() -> None:
    user = UserMessage(text="Look up A-1001 and A-1002")
    asks = AssistantMessage(text="", calls=reply_to(SHOP, user).calls)
    results = [
        ToolResult(call_id=call.id, tool=call.name, content=f'{{"id": "A-100{n}"}}')
        for n, call in enumerate(asks.calls, 1)
    ]
    assert reply_to(SHOP, user, asks, *results).text == "Here's what I found:\nID: A-1001\n\nID: A-1002"


def test_its_own_histories_are_accepted_by_every_provider_over_several_turns() -> None:
    user = UserMessage(text="Look up A-1001 and A-1002")
    asks = AssistantMessage(text="", calls=reply_to(SHOP, user).calls)
    results = [ToolResult(call_id=call.id, tool=call.name, content="ok") for call in asks.calls]
    again = (user, asks, *results, AssistantMessage(text="ok"), user)
    asks_again = AssistantMessage(text="", calls=reply_to(SHOP, *again).calls)
    more = [ToolResult(call_id=call.id, tool=call.name, content="ok") for call in asks_again.calls]
    strict = ScriptedModel(["Fine.", "Fine."])

    async def check() -> None:
        request = ModelRequest(instructions="", messages=(*again, asks_again, *more), tools=SHOP)
        assert [item async for item in strict.stream(request)]

    asyncio.run(check())
    assert strict.refused == []


def test_an_answer_is_streamed_in_pieces_that_add_up_to_it() -> None:
    async def stream(text: str) -> tuple[list[str], Reply]:
        request = ModelRequest(instructions="", messages=(UserMessage(text=text),), tools=NOTES)
        items = [item async for item in OfflineModel(pause=0).stream(request)]
        reply = items[-1]
        assert isinstance(reply, Reply)
        return [item.text for item in items[:-1]], reply

    pieces, reply = asyncio.run(stream("Hello"))
    assert len(pieces) > 5
    assert "".join(pieces) == reply.text


def test_a_schema_that_holds_itself_and_a_pattern_of_another_dialect_do_no_harm() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}, "required": ["next"]}
    strange = {"type": "string", "pattern": r"^\p{Lu}+$"}
    tools = (
        a_tool("add_node", "Add a node.", {"node": {"$ref": "#/$defs/Node"}}, **{"$defs": {"Node": node}}),
        a_tool("name_tree", "Name a tree.", {"name": strange}),
    )
    assert "node" in reply_to(tools, UserMessage(text="Add a node")).text
    assert calls_for(tools, "Name a tree: OAK") == [("name_tree", {"name": "OAK"})]


def test_an_agent_is_asked_with_the_whole_message_or_with_what_stands_after_a_colon() -> None:
    tools = (*NOTES, a_tool("ask_order_desk", "Looks up, refunds and cancels orders.", {"message": TEXT}))
    for said, asked in {
        "Where is order A-1001?": "Where is order A-1001?",
        "Cancel order A-1002": "Cancel order A-1002",
        "Ask the order desk: where is order A-1001?": "where is order A-1001?",
        'Tell the order desk "refund A-1001"': "refund A-1001",
    }.items():
        assert calls_for(tools, said) == [("ask_order_desk", {"message": asked})]
    assert calls_for(tools, "List all notes") == [("list_notes", {})]


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("refund_id", "Refund ID"),
        ("orderIds", "Order IDs"),
        ("emailed", "Emailed"),
        ("imageURL", "Image URL"),
        ("_", "_"),
    ],
)
def test_names_are_told_as_words(name: str, label: str) -> None:
    assert humanise(name) == label


@pytest.mark.parametrize(
    "forms",
    [
        ("refund", "refunds", "refunded", "refunding"),
        ("note", "notes"),
        ("cancel", "cancelled", "cancelling"),
        ("city", "cities"),
        ("add", "adding", "added"),
        ("box", "boxes"),
    ],
)
def test_forms_of_a_word_have_one_stem(forms: tuple[str, ...]) -> None:
    assert len({stem(form) for form in forms}) == 1
