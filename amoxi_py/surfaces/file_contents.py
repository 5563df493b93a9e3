"""The files of an answer, as a door to other programs gives them: small ones whole, the others only told of."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from amoxi_py.domain.principal import Principal
from amoxi_py.engine.files import Files
from amoxi_py.errors import AmoxiError
from amoxi_py.ports.files import StoredFile

log = logging.getLogger("amoxi_py.files")

_MOST_FILES = 8
_LARGEST_FILE = 1 << 20
_LARGEST_IN_ALL = 4 << 20


async def file_contents(
    files: Files, ids: Sequence[str], principal: Principal
) -> tuple[tuple[StoredFile, bytes | None], ...]:
    """Return the files of these ids, each with its bytes, or None where it is too large to be given whole.

    One that cannot be read is left out, and logged.
    """
    found: list[tuple[StoredFile, bytes | None]] = []
    left = _LARGEST_IN_ALL
    for file_id in ids[:_MOST_FILES]:
        try:
            stored = await files.get(file_id, principal)
            data = None
            if stored.file.size <= min(_LARGEST_FILE, left):
                left -= stored.file.size
                data = b"".join([piece async for piece in files.read(stored, principal)])
            found.append((stored, data))
        except AmoxiError as error:
            log.warning("the file %s of an answer cannot be read: %s", file_id, error)
    return tuple(found)
