"""How many bytes something has, as people read it."""

from __future__ import annotations


def amount(count: int) -> str:
    """Return a number of bytes in the unit that fits."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count >= 1024**power:
            return f"{count / 1024**power:.1f} {unit}"
    return f"{count} bytes"
