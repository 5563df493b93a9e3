"""What of a document is searched: what its readers find, and where it is cut."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amoxi_py.app.documents.block import Unreadable
from amoxi_py.app.documents.chunks import LONGEST, WANTED, Chunk
from amoxi_py.app.documents.folder import look_into, read_file
from amoxi_py.app.documents.reading import LONGEST_TEXT, read_document
from amoxi_py.errors import CommandRefused
from pdfs import pdf_of

SENTENCE = "The pump is looked at every spring, before the water is let in. "


def chunks_of(text: str, kind: str = ".md") -> list[Chunk]:
    return read_document(kind, text.encode()).chunks


def places(text: str) -> list[str]:
    return [chunk.place for chunk in chunks_of(text)]


def test_a_passage_stands_under_its_headings_and_says_them_first() -> None:
    first, second, third = chunks_of(
        "Before all.\n\n# The *pump*\n\nOne `a` two.\n\nStill one.\n\nMotor\n-----\n\n> It is\n> loud.\n"
    )
    assert first == Chunk("Before all.", "")
    assert second == Chunk("The pump\n\nOne `a` two.\n\nStill one.", "The pump")
    assert third == Chunk("The pump > Motor\n\n> It is\n> loud.", "The pump > Motor")


def test_a_heading_in_code_is_none_and_one_that_goes_back_up_ends_the_ones_below() -> None:
    assert places("# A\n\n## B\n\nb\n\n```sh\n# no heading\n```\n\n# C\n\nc\n") == ["A > B", "C"]
    assert places("# A\n\n### B\n\nb\n\n## C\n\nc\n") == ["A > B", "A > C"]


def test_a_heading_without_a_text_is_found_by_itself() -> None:
    assert chunks_of("# A\n\n## B\n\n## C\n\nc\n\n# D\n") == [
        Chunk("A > B", "A > B"),
        Chunk("A > C\n\nc", "A > C"),
        Chunk("D", "D"),
    ]


def test_front_matter_comments_and_rules_are_not_what_a_reader_is_told() -> None:
    text = "---\ntitle: Pumps\ntags: [a]\n---\n\n# A\n\n<!-- only for\n\nauthors -->\n\n---\n\nSeen.\n\n<b>Bold.</b>\n"
    assert chunks_of(text) == [Chunk("A\n\nSeen.\n\n<b>Bold.</b>", "A")]
    assert [chunk.text for chunk in chunks_of("---\n\nNo front matter without an end.\n")] == [
        "No front matter without an end."
    ]
    assert [chunk.text for chunk in chunks_of("---\n\nBetween rules.\n\n---\n\nAfter.\n")] == [
        "Between rules.\n\nAfter."
    ]


def test_a_page_whose_title_stands_in_its_front_matter_is_found_by_it() -> None:
    front = "---\ndate: 2026-01-01\ntitle: 'How to send it back'\n---\n"
    assert places(f"{front}Write to us.\n\n## Boots\n\nb\n") == ["How to send it back", "How to send it back > Boots"]
    assert places(f"{front}\n# Returns\n\n## Boots\n\nb\n") == ["Returns > Boots"]
    assert chunks_of(front) == [], "a title alone says nothing"


def test_a_long_section_is_cut_between_paragraphs_and_its_last_sentence_is_said_again() -> None:
    paragraphs = [f"Paragraph {n}. {SENTENCE * 7}End of {n}." for n in range(6)]
    chunks = chunks_of("# A\n\n" + "\n\n".join(paragraphs))
    assert len(chunks) == 3
    assert all(chunk.text.startswith("A\n\n") and len(chunk.text) < WANTED + 250 for chunk in chunks)
    for n, paragraph in enumerate(paragraphs):
        assert sum(paragraph in chunk.text for chunk in chunks) == 1, n
    assert "End of 1." in chunks[1].text
    assert "Paragraph 1." not in chunks[1].text


def test_a_table_and_code_are_not_cut_when_they_fit() -> None:
    code = "```python\n" + "\n".join(f"line_{n} = {n}" for n in range(110)) + "\n```"
    table = "| a | b |\n|---|---|\n" + "\n".join(f"| {n} | of the table |" for n in range(70))
    assert WANTED < len(code) < LONGEST
    assert WANTED < len(table) < LONGEST
    texts = [chunk.text for chunk in chunks_of(f"Before.\n\n{code}\n\nBetween.\n\n{table}\n\nAfter.\n")]
    assert [code in text for text in texts].count(True) == 1
    assert [table in text for text in texts].count(True) == 1


def test_a_table_and_code_that_do_not_fit_are_cut_between_lines_with_their_heads_again() -> None:
    rows = [f"| {n} | of the table |" for n in range(300)]
    for text in (texts := [chunk.text for chunk in chunks_of("| a | b |\n|---|---|\n" + "\n".join(rows))]):
        assert text.startswith("| a | b |\n|---|---|\n| ")
    assert [line for text in texts for line in text.splitlines()[2:]] == rows
    lines = [f"line_{n} = {n}" for n in range(300)]
    for text in (texts := [chunk.text for chunk in chunks_of("```py\n" + "\n".join(lines) + "\n```")]):
        assert text.startswith("```py\nline_")
        assert text.endswith("\n```")
    assert [line for text in texts for line in text.splitlines()[1:-1]] == lines


@given(st.text(alphabet="ab c.\n#|-`>*\t é漢", max_size=400), st.integers(1, 40), st.sampled_from([".md", ".txt"]))
def test_no_word_is_lost_and_no_chunk_is_too_long(text: str, times: int, kind: str) -> None:
    chunks = chunks_of((text + "\n") * times, kind)
    assert all(chunk.text.strip() and len(chunk.text) < 2500 for chunk in chunks)
    if kind == ".txt":
        told = "".join("".join(chunk.text.split()) for chunk in chunks)
        assert set("".join(text.split())) <= set(told)
        assert len(told) >= len("".join(text.split())) * times


def test_a_block_of_nothing_but_spaces_is_nothing() -> None:
    assert [chunk.text.strip() for chunk in chunks_of(" " * 9000 + "a", ".md")] == ["a"]
    assert [chunk.text for chunk in chunks_of(" " * 9000 + "a", ".txt")] == ["a"]


def test_one_word_that_never_ends_is_cut_too() -> None:
    assert "".join(chunk.text for chunk in chunks_of("x" * 5000, ".txt")) == "x" * 5000


def test_the_pages_of_a_pdf_are_its_places() -> None:
    chunks = read_document(".pdf", pdf_of("The pump is loud.", "", "Oil it in May.")).chunks
    assert chunks == [Chunk("The pump is loud.", "page 1"), Chunk("Oil it in May.", "page 3")]


def test_a_pdf_that_cannot_be_read_is_told() -> None:
    from pypdf import PdfReader, PdfWriter

    locked = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf_of("secret"))))
    locked.encrypt("a password", algorithm="AES-256")
    written = io.BytesIO()
    locked.write(written)
    for content, reason in (
        (written.getvalue(), "it has a password"),
        (b"no PDF at all", "it cannot be read as a PDF"),
        (pdf_of("cut off")[:60], "it cannot be read as a PDF"),
        (pdf_of("", ""), "there is no text in it"),
    ):
        with pytest.raises(Unreadable, match=reason):
            read_document(".pdf", content)


def test_old_and_marked_encodings_are_read_and_bytes_are_not() -> None:
    assert read_document(".txt", "Grüße".encode("utf-8-sig")).chunks == [Chunk("Grüße", "")]
    assert read_document(".txt", "Grüße".encode("utf-16")).chunks == [Chunk("Grüße", "")]
    read = read_document(".txt", "Zeile\nGrüße".encode("latin-1"))
    assert read.chunks == [Chunk("Zeile\nGrüße", "")]
    assert read.note == "it is not UTF-8 (line 2) and was read as Windows-1252"
    for content, reason in ((b"a\0b", "bytes of value 0"), (b"\xff\xfea", "is not")):
        with pytest.raises(Unreadable, match=reason):
            read_document(".txt", content)
    assert read_document(".md", b" \n\t").chunks == []


def test_a_folder_gives_its_documents_and_says_why_the_others_are_none(tmp_path: Path) -> None:
    folder, outside = tmp_path / "docs", tmp_path / "outside"
    for each in (folder / "guides", folder / ".git", outside):
        each.mkdir(parents=True)
    for name in ("a.MD", "b.txt", "guides/c.pdf", "guides/d.png", "Makefile", ".hidden.md", ".git/x.md"):
        (folder / name).write_text("text", "utf-8")
    (outside / "secret.md").write_text("secret", "utf-8")
    (folder / "in.md").symlink_to(folder / "guides" / "c.pdf")
    (folder / "out.md").symlink_to(outside / "secret.md")
    (folder / "out").symlink_to(outside)
    (folder / "round").symlink_to(folder)
    (folder / "nowhere.md").symlink_to(folder / "gone.md")
    os.mkfifo(folder / "pipe.md")
    with open(os.fsencode(folder) + b"/\xff.md", "wb"):
        pass
    found = look_into(folder)
    assert found.documents == ["a.MD", "b.txt", "guides/c.pdf", "in.md", "pipe.md"]
    assert found.skipped == {
        "out": "it is a link that leads out of the folder",
        "out.md": "it is a link that leads out of the folder",
        "round": "it is a link to a folder, which is read in its own place",
        "nowhere.md": "it is a link that leads nowhere",
        "\\udcff.md": "its name is not UTF-8",
    }
    assert (found.hidden, found.others) == (2, {".png": 1, "no ending": 1})
    with pytest.raises(Unreadable, match="it is no file"):
        read_file(folder, "pipe.md")


def test_what_is_no_folder_or_too_large_is_told(tmp_path: Path) -> None:
    (tmp_path / "large.txt").write_bytes(b"x" * (LONGEST_TEXT + 1))
    with pytest.raises(Unreadable, match="larger than 8 MB"):
        read_file(tmp_path, "large.txt")
    with pytest.raises(CommandRefused, match="is no folder"):
        look_into(tmp_path / "large.txt")
    with pytest.raises(CommandRefused, match="No such file"):
        look_into(tmp_path / "gone")
