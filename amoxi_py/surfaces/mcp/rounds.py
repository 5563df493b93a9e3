"""What joins the requests of one call: a client that was asked for something comes again with it (2026-07-28).

It is with the client, sealed with a key that all servers of the app have, so any of them can go on. The seal holds for
one caller, one tool and the same arguments, and for a day.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity

from amoxi_py.domain.encoding import decode_json, encode_json
from amoxi_py.surfaces.mcp.abilities import Context

SEALING_KEY = "mcp-request-state"
"""The name of the key among the store's secrets."""

_SEALED_FOR_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What the requests before have come to.

    Attributes:
        run_id: The run that the call goes on with.
        started: Whether the call has started it.
        left_open: Keys of questions that the person did not want to answer.
    """

    run_id: str
    started: bool
    left_open: frozenset[str] = frozenset()

    def told(self) -> str:
        """Return it as it is sealed."""
        return encode_json({"run": self.run_id, "started": self.started, "open": sorted(self.left_open)})

    @classmethod
    def read(cls, told: str) -> Round:
        """Return what was sealed."""
        known = decode_json(told)
        return cls(run_id=known["run"], started=known["started"], left_open=frozenset(known["open"]))


def sealing(key: str, app: str, caller_of: Callable[[Context], str]) -> RequestStateBoundary:
    """Return what seals on the way out, and opens on the way in, as a middleware of the protocol's server."""
    security = RequestStateSecurity(keys=[key], ttl=_SEALED_FOR_S, bind_principal=caller_of)
    return RequestStateBoundary(security, default_audience=app)
