"""Where a person's browser may be sent back to: exactly what the client has named, and what that may be."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import SplitResult, urlencode, urlsplit

from amoxi_py.domain.addresses import is_local

_LONGEST = 2048
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")
_NEVER = frozenset(
    {"about", "blob", "chrome", "data", "file", "filesystem", "ftp", "intent", "jar", "javascript", "ldap", "ldaps"}
    | {"mailto", "mhtml", "nfs", "res", "resource", "rtsp", "search", "search-ms", "sftp", "shell", "sip", "sips"}
    | {"smb", "sms", "smsto", "ssh", "tel", "telnet", "vbscript", "view-source", "vnc", "ws", "wss"}
)
_NEVER_BEGINS = ("ms-", "chrome-", "moz-", "facetime")  # of systems and browsers
_UNSAFE = re.compile(r"[\x00-\x20\x7f-\U0010ffff\"<>\\^`{|}]")


def redirect_problem(uri: object) -> str | None:
    """Return why a client may not have this redirect URI, or None when it may.

    It is an https address, an http one of the person's own machine, or one of a scheme that an app has for itself
    (RFC 8252).
    """
    parts = _parts(uri)
    if parts is None or not isinstance(uri, str):
        return "it is no address"
    if parts.fragment or "#" in uri:
        return "it has a fragment"
    if parts.username is not None or parts.password is not None:
        return "it holds a name or a password"
    if parts.scheme == "https":
        return None if parts.hostname else "it has no host"
    if parts.scheme == "http":
        return None if is_local(parts) else "http is only for localhost, 127.0.0.1 and [::1]"
    if parts.scheme in _NEVER or parts.scheme.startswith(_NEVER_BEGINS) or not _SCHEME.fullmatch(parts.scheme):
        return f"the scheme {parts.scheme!r} is none of an app"
    return None


def matching_redirect(asked: str | None, registered: Iterable[str]) -> str | None:
    """Return where to send the browser, or None when the client has not named it.

    Exactly as named; an http address of the person's own machine may have any port (RFC 8252, section 7.3). Without a
    wish it is the only one.
    """
    known = tuple(registered)
    if asked is None:
        return known[0] if len(known) == 1 else None
    if redirect_problem(asked) is not None:
        return None
    if asked in known or any(_same_but_port(asked, one) for one in known):
        return asked
    return None


def with_parameters(uri: str, parameters: dict[str, str | None]) -> str:
    """Return the address with parameters behind those that it has."""
    query = urlencode({name: value for name, value in parameters.items() if value is not None})
    return f"{uri}{'&' if '?' in uri else '?'}{query}"


def shown_target(uri: str) -> str:
    """Return what a person is shown of an address: the host, or what stands in its place."""
    parts = urlsplit(uri)
    if is_local(parts):
        return "a program on this computer"
    if parts.scheme in ("http", "https"):
        return parts.netloc
    return f"an app on this device ({parts.scheme}:)"


def _same_but_port(asked: str, known: str) -> bool:
    one, other = _parts(asked), _parts(known)
    if one is None or other is None or not (is_local(one) and is_local(other)):
        return False
    return (one.hostname, one.path, one.query) == (other.hostname, other.path, other.query)


def _parts(uri: object) -> SplitResult | None:
    if not isinstance(uri, str) or not 0 < len(uri) <= _LONGEST or _UNSAFE.search(uri):
        return None
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return None
    return parts if parts.scheme else None
