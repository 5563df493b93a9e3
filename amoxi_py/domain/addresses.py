"""Addresses in the web: which are this machine's own, and which may carry secrets."""

from __future__ import annotations

from urllib.parse import SplitResult

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def is_local(parts: SplitResult) -> bool:
    """Whether it is an http address of the person's own machine."""
    return parts.scheme == "http" and parts.hostname in LOCAL_NAMES


def is_safe(parts: SplitResult) -> bool:
    """Whether secrets may go there: over https, or to this machine."""
    return parts.scheme == "https" or is_local(parts)
