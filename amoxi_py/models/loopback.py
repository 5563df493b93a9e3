"""A switch that keeps requests of models on this machine: the pytest plugin sets it, and child processes inherit it."""

from __future__ import annotations

import os
from ipaddress import ip_address
from urllib.parse import urlsplit

from amoxi_py.errors import ModelFailed

SWITCH = "AMOXI_LOOPBACK_MODELS"


def check_reach(model: str, address: object) -> None:
    """Let a request pass to this machine, and to any other when the switch is off.

    Args:
        model: The model's name, for the message.
        address: Where the request goes: a URL, or what turns into one as text.

    Raises:
        ModelFailed: the switch is on, and the address is another machine's.
    """
    if os.environ.get(SWITCH, "") in ("", "0") or _is_here(urlsplit(str(address)).hostname or ""):
        return
    raise ModelFailed(
        f"the model {model!r} is at {str(address)!r}, and {SWITCH} keeps requests on this machine: give the test a "
        "ScriptedModel or a StrictModelServer, or set 'amoxi_real_models' for pytest",
        code="model_out_of_reach",
        retryable=False,
    )


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
