"""The chat page with files: chosen with a keyboard, uploaded, sent, shown, and their errors told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.xdist_group("browser")  # one browser at a time on a small machine

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
DOT = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0000003010100"
    "c9fe92ef0000000049454e44ae426082"
)  # a picture of one red point
MB = 1024 * 1024


def choose(chat: Any, *files: tuple[str, bytes, str]) -> None:
    """Open the chooser with the keyboard, and take files."""
    with chat.page.expect_file_chooser() as chooser:
        chat.button("Attach files").focus()
        chat.page.keyboard.press("Enter")
    chooser.value.set_files([{"name": name, "buffer": content, "mimeType": kind} for name, content, kind in files])


def test_a_person_sends_files_sees_them_and_is_told_what_went_wrong(
    shop_model: Any, open_page: Any, tmp_path: Path
) -> None:
    server = shop_model({"*": ["I see."]})
    chat = open_page(f"{server.url}/support-agent")
    expect(chat.page.locator(".welcome")).to_be_visible()
    chosen = chat.page.get_by_role("list", name="Files to send").get_by_role("listitem")
    choose(
        chat, ("dot.png", DOT, "image/png"), ("<b>table.csv", b"a,b\n", "text/csv"), ("wrong.txt", b"x", "text/plain"),
        ("photo.heic", b"no browser shows it", "image/heic"),
    )  # fmt: skip
    expect(chosen).to_have_count(4)
    expect(chat.page.get_by_role("progressbar")).to_have_count(0)
    expect(chat.page.locator(".attachments [aria-live]")).to_contain_text("uploaded.")
    chat.page.evaluate(AXE.read_text("utf-8"))
    assert chat.page.evaluate("axe.run().then(({violations}) => violations.filter((it) => "
                              "['serious', 'critical'].includes(it.impact)).map((it) => it.id))") == []  # fmt: skip
    chat.shot("files-chosen")
    chat.button("Remove wrong.txt").press("Enter")
    expect(chosen).to_have_count(3)
    expect(chat.page.get_by_label("Message")).to_be_focused()

    chat.page.keyboard.press("Enter")
    expect(chat.answers).to_contain_text("I see.")
    expect(chosen).to_have_count(0)
    shown = chat.page.locator(".message.user .file")
    expect(shown).to_have_count(3)
    picture = shown.get_by_role("img", name="dot.png")
    expect(picture).to_be_visible()
    assert picture.evaluate("(it) => it.decode().then(() => it.naturalWidth)") == 1
    expect(shown.get_by_role("link", name="<b>table.csv")).to_be_visible()
    photo = shown.get_by_role("link", name="photo.heic")
    expect(photo).to_have_text("photo.heic")
    expect(shown.get_by_role("img")).to_have_count(1)
    chat.shot("files-shown")
    with chat.page.expect_download() as download:
        shown.get_by_role("link", name="<b>table.csv").click()
    assert Path(download.value.path()).read_bytes() == b"a,b\n"

    (large := tmp_path / "large.bin").write_bytes(b"x" * 26 * MB)
    with chat.page.expect_file_chooser() as chooser:
        chat.button("Attach files").click()
    chooser.value.set_files(large)
    expect(chat.problem).to_contain_text("large.bin was not uploaded: the file is larger than 25 MB")
    expect(chosen).to_have_count(0)
    photo_url = photo.get_attribute("href")
    chat.page.route("**/files/**", lambda route: route.abort())
    chat.page.reload()
    expect(shown).to_have_text(["A file that could not be loaded: the server cannot be reached. Load the file"] * 3)
    chat.page.unroute("**/files/**")
    assert chat.page.request.delete(photo_url).status == 204
    for button in chat.page.get_by_role("button", name="Load the file").all()[::-1]:
        button.press("Enter")
    expect(shown).to_have_text([" 69 B", "<b>table.csv 4 B", "A file that is not there any more."])
    expect(picture).to_be_visible()
    assert chat.unexpected() == []
