"""A plugin of pytest for the A2A TCK, which can send no token and listens to the whole network.

It is given to the TCK by name, `-p tck_plugin`, with its folder on PYTHONPATH and the token in A2A_TOKEN:
docs/conformance.md has the commands. A test that asks what happens without a token, by its name, sends none.
"""

from __future__ import annotations

import os
from typing import Any

import httpx
import pytest

NONE = "without_auth"
sending = {"authorization": f"Bearer {os.environ['A2A_TOKEN']}"}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: Any) -> None:
    """Choose what the clients that a test makes send."""
    sending["authorization"] = "" if NONE in item.name else f"Bearer {os.environ['A2A_TOKEN']}"


def authorize(kind: type[Any]) -> None:
    """Let all clients of this kind send the token."""
    begin = kind.__init__

    def begin_with_token(self: Any, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        self.headers.update(sending)

    kind.__init__ = begin_with_token  # type: ignore[misc] # there is no other way in


def stay_on_loopback() -> None:
    """Let the receiver of webhooks listen on the loopback interface alone; the TCK for 0.3 has none."""
    try:
        from tck.webhook.server import WebhookReceiver
    except ImportError:
        return
    begin = WebhookReceiver.__init__
    WebhookReceiver.__init__ = lambda self: begin(self, host="127.0.0.1")


authorize(httpx.Client)
authorize(httpx.AsyncClient)
try:
    import requests
except ImportError:  # only the TCK for 0.3 has it
    pass
else:
    authorize(requests.Session)
stay_on_loopback()
