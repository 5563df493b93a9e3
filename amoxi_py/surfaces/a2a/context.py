"""What the endpoint knows of a request before its message is read: who asks, in which version, at which address."""

from __future__ import annotations

import re

from a2a.server.context import ServerCallContext
from a2a.utils.constants import PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0, VERSION_HEADER
from a2a.utils.errors import VersionNotSupportedError
from starlette.requests import Request

from amoxi_py.domain.principal import Principal
from amoxi_py.surfaces.a2a.settings import A2aSettings

V0_3, V1_0 = PROTOCOL_VERSION_0_3, PROTOCOL_VERSION_1_0

_VERSION = re.compile(r"([0-9]{1,4}\.[0-9]{1,4})(?:\.[0-9]{1,4})?")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?", re.ASCII | re.IGNORECASE)
_NOWHERE = {"0.0.0.0", "[::]"}  # noqa: S104 - where a server listens, and nobody finds it


def call_context(principal: Principal, version: str, base: str) -> ServerCallContext:
    """Return what a handler is told beside the message: in `state` are `principal`, `version` and `base`.

    Args:
        principal: Who asks.
        version: Of the protocol that the caller speaks: `0.3` or `1.0`.
        base: The public address of this server with the prefix, without a slash at the end.
    """
    return ServerCallContext(state={"principal": principal, "version": version, "base": base})


def asked_version(request: Request) -> str:
    """Return the version that a request is in, by its header or its query (3.6.1): without one it is 0.3.

    Raises:
        VersionNotSupportedError: it is none of ours.
    """
    told = {text.strip() for text in request.headers.getlist(VERSION_HEADER)} - {""}
    if not told:
        told = {text.strip() for text in request.query_params.getlist(VERSION_HEADER)} - {""}
    if not told:
        return V0_3
    match = _VERSION.fullmatch(told.pop()) if len(told) == 1 else None
    if match is None or match[1] not in (V0_3, V1_0):
        raise unsupported_version()
    return match[1]


def unsupported_version(asked: str | None = None) -> VersionNotSupportedError:
    """Return the error for a version that is not spoken here, or not by this method."""
    if asked is None:
        return VersionNotSupportedError(f"this server speaks the versions {V1_0} and {V0_3} of A2A: say one of them")
    return VersionNotSupportedError(
        f"the method is not one of version {asked}, which the request is in: say the other one of {V1_0} and {V0_3} in "
        f"{VERSION_HEADER}, or call it by its name in version {asked}"
    )


def base_of(settings: A2aSettings, request: Request) -> str:
    """Return the public address of this server with the prefix: as it is set, else by which the request came."""
    if settings.public_url is not None:
        return f"{settings.public_url.rstrip('/')}{settings.prefix}"
    match = _HOST.fullmatch(request.headers.get("host", ""))
    host = "localhost" if match is None else f"{'localhost' if match[1] in _NOWHERE else match[1]}{match[2] or ''}"
    return f"{request.scope.get('scheme', 'http')}://{host}{request.scope.get('root_path', '')}{settings.prefix}"
