"""The template app in a folder of its own, and a real browser to look at its page with."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "app_template"
LEFT_OUT = shutil.ignore_patterns("__pycache__", ".pytest_cache", "refunds.log", "ai", "*.jsonl", "cancelled.log")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-sync"]
NOTE_VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) => console.error(`CSP: ${event.violatedDirective}`));
"""


@pytest.fixture
def copy_template() -> Any:
    """Copy the template, as a clone has it: `copy_template(folder)`."""
    return lambda folder: Path(shutil.copytree(TEMPLATE, folder, ignore=LEFT_OUT))


@pytest.fixture
def folder(copy_template: Any, tmp_path: Path) -> Path:
    """The template app, as `amoxi new` gives it."""
    return Path(copy_template(tmp_path / "shop"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium of this machine, else the one of playwright; without either the tests of the page fail."""
    with sync_playwright() as playwright:
        found = next(filter(None, map(shutil.which, BROWSERS)), None)
        if found is None and not Path(playwright.chromium.executable_path).exists():
            pytest.fail("no browser: install Chromium, or run `.venv/bin/python -m playwright install chromium`")
        browser = playwright.chromium.launch(executable_path=found, headless=True, chromium_sandbox=False, args=OPTIONS)
        expect.set_options(timeout=20_000)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Any]:
    """Open a page as a new visitor: `open_page(url)`; it keeps what the browser complained about in `.complaints`."""
    contexts = []

    def start(url: str) -> Page:
        context = browser.new_context(viewport={"width": 900, "height": 700})
        context.set_default_timeout(20_000)
        context.add_init_script(NOTE_VIOLATIONS)
        contexts.append(context)
        page = context.new_page()
        complaints: list[str] = []
        page.on("console", lambda line: complaints.append(line.text) if line.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.complaints = complaints  # type: ignore[attr-defined]
        page.goto(url)
        return page

    yield start
    for context in contexts:
        context.close()
