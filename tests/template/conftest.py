"""The template app in a folder of its own, and a real browser to look at the chat page with.

Screenshots of its states are kept in `data/screenshots`, for people to look at.
"""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from amoxi_py.testing import Script, StrictModelServer

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "app_template"
LEFT_OUT = shutil.ignore_patterns("__pycache__", ".pytest_cache", "refunds.log", "ai", "*.jsonl", "cancelled.log")
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LOUD = ("error", "warning")
OPTIONS = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-sync"]
SCREENSHOTS = ROOT / "data" / "screenshots"
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


@dataclass
class ChatPage:
    """A chat page in a browser: what a person does there, and what they see.

    Attributes:
        page: The browser's page.
        complaints: What the browser complained about on its console.
    """

    page: Page
    complaints: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.page.get_by_label("Message").fill(text)
        self.page.get_by_role("button", name="Send").click()

    @property
    def status(self) -> Locator:
        return self.page.get_by_role("status")

    @property
    def problem(self) -> Locator:
        return self.page.get_by_role("alert")

    @property
    def answers(self) -> Locator:
        return self.page.locator(".message.assistant")

    @property
    def calls(self) -> Locator:
        return self.page.locator(".call")

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def kept(self) -> str | None:
        """The conversation that the browser keeps for the next time."""
        found: str | None = self.page.evaluate("Object.values(localStorage).find((it) => it.startsWith('conv_'))")
        return found

    def shot(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png")

    def until(self, condition: Callable[[], Any], seconds: float = 60.0) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            assert time.monotonic() < deadline, self.page.locator("body").inner_text()
            self.page.wait_for_timeout(20)  # lets the browser's events in
        return found

    def unexpected(self) -> list[str]:
        """Complaints beside those about a server that is away."""
        return [line for line in self.complaints if "ERR_" not in line and "Failed to load resource" not in line]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., ChatPage]]:
    """Open a page as a new visitor, `open_page(url)`; with `beside=` another page, in a tab of the same browser."""
    contexts: list[BrowserContext] = []

    def start(url: str, *, beside: ChatPage | None = None, **options: Any) -> ChatPage:
        if beside is None:
            context = browser.new_context(**{"viewport": {"width": 1000, "height": 720}, **options})
            context.set_default_timeout(20_000)
            context.add_init_script(NOTE_VIOLATIONS)
            contexts.append(context)
        else:
            context = beside.page.context
        chat = ChatPage(context.new_page())
        chat.page.on("console", lambda line: chat.complaints.append(line.text) if line.type in LOUD else None)
        chat.page.on("pageerror", lambda error: chat.complaints.append(str(error)))
        chat.page.goto(url)
        return chat

    yield start
    for context in contexts:
        context.close()


@pytest.fixture
def shop_model(serve: Any, folder: Path) -> Iterator[Callable[..., Any]]:
    """Serve the template with a scripted model, `shop_model(script)`; the model has refused nothing at the end.

    The server that it gives can be started again by `shop_model(port=server.port)`, with the same model and data.
    """
    models: list[StrictModelServer] = []

    def start(script: Script | None = None, **options: Any) -> Any:
        if script is not None:
            models.append(StrictModelServer(script).start())
        env = {"AI_MODEL": "openai:test", "OPENAI_BASE_URL": models[-1].url, "OPENAI_API_KEY": "sk-of-the-test"}
        return serve(folder, env={**env, "AI_RUNS_LEASE_MS": "2000"}, **options)

    yield start
    for model in models:
        model.stop()
    assert [problem for model in models for problem in model.refused] == []


class Line:
    """A line to a server that a test can cut: `url` is its address, `cut()` breaks all that goes over it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        cut, self._open = self._open, []
        for side in cut:
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes up who waits for the next one
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._port))  # the server outlives the line
                self._open += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
        source.close()


@pytest.fixture
def line_to() -> Iterator[Callable[[int], Line]]:
    """Put a line that can be cut before a server: `line_to(server.port)`."""
    lines: list[Line] = []

    def lay(port: int) -> Line:
        lines.append(Line(port))
        return lines[-1]

    yield lay
    for line in lines:
        line.close()
