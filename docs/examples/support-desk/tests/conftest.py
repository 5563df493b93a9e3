"""What all tests share: a folder of its own for each, people who have signed in, and a mailbox."""

import email
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from email.message import Message
from typing import Any

import pytest

SECRET = "a-secret-of-the-tests-that-is-long-enough"


@pytest.fixture(autouse=True)
def own_folder(amoxi_folder):
    """Make a new folder the current one, with the settings of `application.json` and `application-test.json`."""


@pytest.fixture
def amoxi_settings() -> dict[str, Any]:
    return {"desk.session-secret": SECRET}


@pytest.fixture
def person(amoxi_app) -> Callable[[str], Any]:
    """Sign somebody in: `person("ann")` is a client of the app with their session."""

    def sign_in(login: str) -> Any:
        client = amoxi_app.client()
        answer = client.http.post("/login", json={"login": login, "password": f"{login}-of-the-demo"})
        assert answer.status_code == 200, answer.text
        return client

    return sign_in


@pytest.fixture
def until() -> Callable[..., Any]:
    """Wait until something holds, and return it."""

    def wait(holds: Callable[[], Any], seconds: float = 20.0) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := holds()):
            assert time.monotonic() < deadline, "it did not come to hold in time"
            time.sleep(0.01)
        return found

    return wait


class Mailbox:
    """A mail server of this machine: what it got, and by Message-ID what its owner sees.

    While `answers` is not set, it has a mail but does not tell the sender so.
    """

    def __init__(self) -> None:
        self.delivered: list[Message] = []
        self.answers = threading.Event()
        box = self

        class Session(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(b"220 here\r\n")
                for line in self.rfile:
                    command = line[:4].upper()
                    if command == b"DATA":
                        self.wfile.write(b"354 go on\r\n")
                        text = b"".join(iter(self.rfile.readline, b".\r\n"))
                        box.delivered.append(email.message_from_bytes(text))
                        box.answers.wait(20)
                    self.wfile.write(b"221 bye\r\n" if command == b"QUIT" else b"250 fine\r\n")

        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *peer: None  # a sender that is killed hangs up
        self.port = self.server.server_address[1]

    @property
    def seen(self) -> list[Message]:
        return list({mail["Message-ID"]: mail for mail in self.delivered}.values())


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    box = Mailbox()
    thread = threading.Thread(target=box.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield box
    box.answers.set()
    box.server.shutdown()
    thread.join()
    box.server.server_close()
