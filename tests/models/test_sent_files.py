"""Files of a person's message on both wires: pictures, PDFs and texts are shown, everything else stays a note."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from amoxi_py.models.history import check_request
from amoxi_py.models.sent_files import LARGEST_TEXT, FileLimits, ShownFiles, look_at
from amoxi_py.ports.chat_model import ModelRequest, SentFile, UserMessage
from amoxi_py.testing import ScriptedModel

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
JPEG = b"\xff\xd8\xff\xe0" + b"\0" * 20
WEBP = b"RIFF\0\0\0\0WEBPVP8 "
PDF = b"%PDF-1.7\n..."


def sent(name: str, media_type: str, data: bytes, id: str = "file_1") -> SentFile:
    return SentFile(id=id, name=name, media_type=media_type, data=data)


def asked(*files: SentFile, text: str = "What is this?") -> ModelRequest:
    notes = tuple(f"[file {file.id}: {file.name!r}, {file.media_type}, {len(file.data)} bytes]" for file in files)
    return ModelRequest(instructions="", messages=(UserMessage(text=text, notes=notes, files=files),))


FILES = (
    sent("a.png", "image/png", PNG, "file_1"),
    sent("b.jpg", "image/png", JPEG, "file_2"),
    sent("c.pdf", "application/pdf", PDF, "file_3"),
    sent("d.csv", "text/csv; charset=utf-8", "größe,1\n".encode(), "file_4"),
    sent("e.bin", "application/octet-stream", b"\0\1", "file_5"),
)


def test_pictures_pdfs_and_texts_are_shown_and_everything_else_stays_a_note(stage: Any, wire: str) -> None:
    request = asked(*FILES)
    model = stage.model(wire, options={"show_files": True})
    stage.reply(wire, "A bag.", request, model=model)
    told = stage.server.requests[-1].messages[0]
    assert (told.text, told.notes) == ("What is this?", request.messages[0].notes)  # type: ignore[union-attr] # a person's
    assert [(file.media_type, file.data) for file in told.files] == [
        ("image/png", PNG),
        ("image/jpeg", JPEG),
        ("application/pdf", PDF),
        ("text/plain", "größe,1\n".encode()),
    ]
    assert [file.name for file in told.files][2:] == ["c.pdf", "d.csv"]


def test_what_a_model_is_shown_can_be_chosen(stage: Any, wire: str) -> None:
    for forms, count in ((False, 0), (["pictures"], 2), (["documents", "texts"], 2)):
        request = msgspec.structs.replace(asked(*FILES), options={"show_files": forms})
        stage.reply(wire, "A bag.", request)
        assert len(stage.server.requests[-1].messages[0].files) == count
    stage.reply(wire, "A bag.", asked(*FILES))
    assert len(stage.server.requests[-1].messages[0].files) == (3 if wire == "openai" else 4)


def test_a_message_of_files_alone_has_their_notes_as_its_text(stage: Any, wire: str) -> None:
    stage.reply(wire, "A bag.", asked(FILES[0], text=""))
    told = stage.server.requests[-1].messages[0]
    assert (told.text, len(told.notes), len(told.files)) == ("", 1, 1)


@pytest.mark.parametrize(
    "file",
    [
        sent("a.png", "image/png", b"not a picture"),
        sent("a.svg", "image/svg+xml", b"<svg/>"),
        sent("a.pdf", "application/pdf", b"<html>"),
        sent("a.txt", "text/plain", b"\xff\xfe"),
        sent("a.txt", "text/plain", b"a\0b"),
        sent("a.txt", "text/plain", b" \n"),
        sent("a.txt", "text/plain", b"x" * (LARGEST_TEXT + 1)),
        sent("a.bin", "application/octet-stream", b"text"),
        sent("a.png", "image/png", b""),
    ],
)
def test_a_file_is_what_its_bytes_are_and_is_not_shown_when_a_provider_would_refuse_it(file: SentFile) -> None:
    assert look_at(file) is None


def test_the_type_of_a_picture_or_a_text_is_told_by_its_bytes() -> None:
    found = [look_at(sent("x", kind, data)) for kind, data in (("", WEBP), ("image/jpeg", PNG), ("text/plain", PDF))]
    assert [file.media_type if file else None for file in found] == ["image/webp", "image/png", "application/pdf"]
    assert look_at(sent("x.json", "application/geo+json", b"{}")) is not None


def test_beyond_the_limits_the_newest_files_are_shown() -> None:
    limits = FileLimits(picture=len(PNG), document=10, pictures=2, all=3 * len(PNG))
    messages = [UserMessage(text="x", files=(sent(f"{n}", "image/png", PNG),)) for n in range(3)]
    big = UserMessage(text="x", files=(sent("big", "image/png", PNG + b"\0"), sent("pdf", "application/pdf", PDF)))
    shown = ShownFiles([*messages, big], limits)
    assert [len(shown.of(message)) for message in (*messages, big)] == [0, 1, 1, 0]
    few = ShownFiles(messages, FileLimits(picture=99, document=99, pictures=9, all=2 * len(PNG)))
    assert [len(few.of(message)) for message in messages] == [0, 1, 1]


def test_the_scripted_model_wants_a_note_for_each_file_and_no_empty_one(stage: Any) -> None:
    model = ScriptedModel(["A bag."])
    bare = UserMessage(text="Look", files=(FILES[0],))
    stage.failure("openai", "", ModelRequest(instructions="", messages=(bare,)), model=model)
    assert model.refused == ["messages[0]: the file 'file_1' is shown, but no note tells its id"]
    assert check_request(asked(sent("a.png", "image/png", b""))) == ["messages[0]: the file 'file_1' is empty"]
    assert check_request(asked(*FILES)) == []
