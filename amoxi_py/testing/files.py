"""Files of a test: what a person sends with a message, and what tools have saved."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping

from amoxi_py.domain.file import clean_media_type, clean_name
from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import NotFound
from amoxi_py.ports.files import NewFile

_LONGEST = 60


def file_id_of(name: str) -> str:
    """Return the id that a test's file gets: `table.csv` is `file_table_csv`, so that a script can name it."""
    return f"file_{re.sub('[^0-9a-z]+', '_', name.lower()).strip('_')[:_LONGEST] or 'unnamed'}"


async def bring_files(engine: Engine, files: Mapping[str, bytes], principal: Principal) -> tuple[str, ...]:
    """Store files by name for a principal, and return their ids.

    Raises:
        AssertionError: there is another file of this name in the conversation, or two names make the same id.
    """
    ids = []
    for given, content in files.items():
        name = clean_name(given)
        media_type = clean_media_type(None, name)
        new = NewFile(id=file_id_of(given), principal=principal, name=name, media_type=media_type)
        stored = await engine.files.store.save_file(new, _once(content))
        there = b"".join([part async for part in engine.files.read(stored, principal)])
        if there != content or stored.file.name != name or new.id in ids:
            raise AssertionError(f"there is another file {new.id!r} already: give {given!r} another name")
        ids.append(new.id)
    return tuple(ids)


async def saved_files(engine: Engine, messages: Iterable[Message], principal: Principal) -> dict[str, bytes]:
    """Return the bytes of the files that the replies show, by name and in order."""
    saved: dict[str, bytes] = {}
    for file_id in (file_id for message in messages if message.role == "assistant" for file_id in message.files):
        try:
            stored = await engine.files.get(file_id, principal)
        except NotFound:  # deleted since
            continue
        saved[stored.file.name] = b"".join([part async for part in engine.files.read(stored, principal)])
    return saved


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
