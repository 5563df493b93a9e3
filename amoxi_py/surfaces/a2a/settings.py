"""What the A2A surface is told: who may call, and its limits. It holds digests of tokens, never tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PATH = "/a2a"


@dataclass(frozen=True, slots=True, kw_only=True)
class A2aSettings:
    """Times are in seconds, sizes in bytes.

    Attributes:
        name: The app's.
        version: The app's own; `0` when it is not known.
        description: What the app is for, or None: then what its agents are for.
        callers: By a caller's name, the digests (SHA-256) of its tokens; the caller is `a2a:<name>`.
        prefix: Comes before every path, such as `/ai`; empty for none.
        public_url: Where other agents find this server, without the prefix; None: where they asked.
        cors_origins: Foreign pages that may call.
        default_agent: Who gets a message that names no skill, where several could be meant; or None.
        deduplicate: Whether a message with an id that the caller has used already is the same message.
        push_allow: Hosts, `host:port` or networks that webhooks may go to though they are not public.
        card_key: A private key (PEM, EC P-256) that signs the card, or None.
        max_file: The largest file.
        max_json: The longest body of a request without files.
        heartbeat: The longest silence of a stream.
        stop_grace: How long a stop of the server may take.
    """

    name: str
    version: str = "0"
    description: str | None = None
    callers: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict, repr=False)
    prefix: str = ""
    public_url: str | None = None
    cors_origins: tuple[str, ...] = ()
    default_agent: str | None = None
    deduplicate: bool = True
    push_allow: tuple[str, ...] = ()
    card_key: str | None = field(default=None, repr=False)
    max_file: int = 25 << 20
    max_json: int = 1 << 20
    heartbeat: float = 15.0
    stop_grace: float = 20.0

    @property
    def max_body(self) -> int:
        """The longest body of a request: one of the largest files fits in, which is in it as base64."""
        return self.max_json + self.max_file * 4 // 3
