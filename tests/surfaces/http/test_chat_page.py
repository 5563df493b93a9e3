"""`/chat/{agent}` as an answer: who gets the page, and what it and its files allow a browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import pytest

PAGE = files("amoxi_py.surfaces.http") / "chat_page"


def test_the_page_of_an_agent_names_it_and_allows_nothing_inline_and_nothing_from_elsewhere(shared_house: Any) -> None:
    answer = shared_house.visitor().get("/chat/support-agent")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("default-src 'self';")
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert 'data-amoxi-chat="support-agent"' in answer.text
    assert re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|style=|https?://", answer.text) is None


def test_the_page_makes_a_new_visitor_known_and_keeps_one_that_is(shared_house: Any) -> None:
    visitor = shared_house.visitor()
    assert "amoxi_visitor" in visitor.get("/chat/support-agent").headers["set-cookie"]
    run = shared_house.submit(visitor, "hello", wait=10)
    assert "set-cookie" not in visitor.get("/chat/support-agent").headers
    assert visitor.get(f"/runs/{run['id']}").status_code == 200


@pytest.mark.parametrize("agent", ["nobody", "inner-agent", "acme-agent", "%3Cscript%3E", "page.js.map"])
def test_an_agent_that_the_caller_has_not_is_a_page_that_says_so(shared_house: Any, agent: str) -> None:
    answer = shared_house.visitor().get(f"/chat/{agent}")
    assert answer.status_code == 404
    assert "There is no such agent" in answer.text
    assert "<script" not in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'self';")


def test_an_agent_for_some_callers_has_a_page_for_them(shared_house: Any) -> None:
    assert shared_house.api("acme").get("/chat/acme-agent").status_code == 200
    assert shared_house.api("globex").get("/chat/acme-agent").status_code == 404


def test_where_visitors_are_not_welcome_the_page_asks_to_sign_in(open_house: Callable[..., Any]) -> None:
    house = open_house(anonymous=False)
    answer = house.visitor().get("/chat/support-agent")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "sign in" in answer.text
    assert house.visitor().get("/chat/page.js").status_code == 200


def test_every_file_of_the_page_is_served_with_its_type_and_only_sent_again_when_it_changed(shared_house: Any) -> None:
    visitor = shared_house.visitor()
    sources = [PAGE / "page.html", *(each for each in PAGE.iterdir() if each.name.endswith(".js"))]
    wanted = {"page.js", "client.js", "icon.svg"}
    for source in sources:
        text = source.read_text("utf-8")
        wanted |= set(re.findall(r'(?:from|src=|href=) ?"(?:\./)?(\w[\w./-]*\.(?:js|css|svg))"', text))
    assert len(wanted) > 14
    types = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
    for name in sorted(wanted | {"vendor/preact.js"}):
        answer = visitor.get(f"/chat/{name}")
        assert answer.status_code == 200, name
        assert answer.headers["content-type"].startswith(types[name.rpartition(".")[2]])
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-cache"
        again = visitor.get(f"/chat/{name}", headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


def test_no_other_file_of_the_package_is_served(shared_house: Any) -> None:
    for name in ("page.html", "notice.html", "vendor/VERSIONS", "../chat.py", "%2e%2e/chat.py", "vendor/../page.html"):
        assert shared_house.visitor().get(f"/chat/{name}").status_code == 404, name


def test_the_page_lies_under_the_prefix(open_house: Callable[..., Any]) -> None:
    visitor = open_house(prefix="/ai").visitor()
    assert visitor.get("/ai/chat/support-agent").status_code == 200
    assert visitor.get("/ai/chat/page.js").status_code == 200
    assert visitor.get("/chat/support-agent").status_code == 404


def test_the_vendored_files_are_the_versions_that_are_written_beside_them() -> None:
    versions = (PAGE / "vendor" / "VERSIONS").read_text("utf-8").splitlines()
    names = [line.split(" ")[0] for line in versions]
    assert names == ["preact", "htm", "marked", "dompurify"]
    for line in versions:
        name, version, integrity = line.split(" ")
        assert re.fullmatch(r"\d+\.\d+\.\d+", version)
        assert integrity.startswith("sha512-")
        assert (PAGE / "vendor" / f"{name}.LICENSE").is_file()
    assert "3.5.0" in (PAGE / "vendor" / "dompurify.js").read_text("utf-8")[:200]
