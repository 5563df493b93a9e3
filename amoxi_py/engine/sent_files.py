"""The bytes of files that people sent with their messages, for the model of one run: read once, within limits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from amoxi_py.domain.file import File
from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.files import PIECE
from amoxi_py.engine.journal import Journal
from amoxi_py.errors import NotFound
from amoxi_py.ports.chat_model import SentFile
from amoxi_py.ports.files import FileStore

LARGEST = 5 * 1024 * 1024
LARGEST_TOGETHER = 20 * 1024 * 1024
_LOOKED_AT = re.compile(r"image/(?:png|jpeg|gif|webp)|application/pdf")
_TEXTS = re.compile(r"text/.+|application/(?:[\w.-]+\+)?(?:json|xml|yaml|x-yaml|toml|csv|x-ndjson|javascript|sql)")


class SentFiles:
    """Reads pictures, PDFs and text files, the newest first, until they would be too many bytes for one request.

    Args:
        store: Where they are.
        journal: Tries again while the store is away.
        principal: Whose they are.
        longest_text: Bytes of a text file above which it has its note only, as a tool's result.

    Attributes:
        known: The files that exist, by id.
        shown: Those of them that a model is shown.
    """

    def __init__(self, store: FileStore, journal: Journal, principal: Principal, longest_text: int) -> None:
        self._store = store
        self._journal = journal
        self._principal = principal
        self._longest_text = longest_text
        self.known: Mapping[str, File] = {}
        self.shown: Mapping[str, SentFile] = {}

    async def choose(self, messages: Sequence[Message]) -> None:
        """Find the files of these messages again; what is read once stays in memory as long as it is shown."""
        people = [message for message in messages if message.role == "user" and message.files]
        ids = list(dict.fromkeys(file_id for message in people for file_id in message.files))
        if not ids:
            return
        found = await self._journal.persist(lambda: self._store.find_files(ids, self._principal))
        known = {file.id: file for file in found}
        shown: dict[str, SentFile] = {}
        left = LARGEST_TOGETHER
        for file_id in reversed(ids):
            file = known.get(file_id)
            if file is None or not self._may_be_shown(file, left):
                continue
            seen = self.shown.get(file_id) or await self._read(file)
            if seen is None:
                del known[file_id]
            else:
                left -= len(seen.data)
                shown[file_id] = seen
        self.known, self.shown = known, shown

    def _may_be_shown(self, file: File, left: int) -> bool:
        if _TEXTS.fullmatch(file.media_type):
            return 0 < file.size <= min(self._longest_text, left)
        return _LOOKED_AT.fullmatch(file.media_type) is not None and 0 < file.size <= min(LARGEST, left)

    async def _read(self, file: File) -> SentFile | None:
        """Return the file with its bytes, or None when it was deleted in the meantime."""
        pieces: list[bytes] = []
        place = 0
        while place < file.size:
            start = place
            try:
                piece = await self._journal.persist(
                    lambda: self._store.read_file(file.id, self._principal, start, PIECE)  # noqa: B023 - awaited here
                )
            except NotFound:
                return None
            if not piece:
                return None
            pieces.append(piece)
            place += len(piece)
        return SentFile(id=file.id, name=file.name, media_type=file.media_type, data=b"".join(pieces))
