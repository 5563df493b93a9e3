"""How the documents of a folder come into a knowledge base, and out of it again when they leave the folder.

A file is one transaction, and what it says is known by its digest: whoever is killed anywhere, and begun again, goes on
with the next file. Two that do the same at once store the same. Vectors are made last, of all passages that have none,
so a server of the app makes those that are missing when nobody comes back.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from amoxi_py.app.declarations import require_package
from amoxi_py.app.documents.block import Unreadable
from amoxi_py.app.documents.chunks import Chunk
from amoxi_py.app.documents.folder import Found, look_into, read_file
from amoxi_py.app.documents.reading import Read, digest_of, kind_of, read_document
from amoxi_py.app.embedder import embedder_of
from amoxi_py.app.runtime import engine_settings_of
from amoxi_py.app.store import make_store
from amoxi_py.config.load import load_settings
from amoxi_py.declare.definitions import NO_HOOKS
from amoxi_py.domain.encoding import encode_json
from amoxi_py.domain.memory import space_of_documents
from amoxi_py.engine.embedding import Embedding
from amoxi_py.engine.memories import Memories, checked_base, digest_of_text
from amoxi_py.engine.memory_keeping import MemoryKeeping
from amoxi_py.engine.redaction import Redaction
from amoxi_py.errors import CommandRefused, ModelFailed
from amoxi_py.ports.clock import SystemClock
from amoxi_py.ports.passages import NewPassage, PassageStore


class Ingested(Struct, frozen=True, kw_only=True):
    """What came of it; files are told by their paths in the folder, with `/`.

    Attributes:
        base: The knowledge base.
        new: Files that were not in it.
        changed: Files that say something else than the base had.
        unchanged: Files of which nothing was done.
        removed: Files that were in the base and are not in the folder any more, or say nothing any more.
        passages: How many passages the new and the changed files have.
        skipped: Why a file was not taken; what the base had of one that cannot be read stays in it.
        notes: What else is to be known of a file that was taken, such as a guessed encoding.
        hidden: How many files and folders begin with a dot; they are left out.
        others: How many files of other kinds were left out, by the ending of their names.
        without_vectors: Why some passages have no vector yet, so that only their words are found: the embedder's error.
            Servers of the app make them later. Empty when all have one.
    """

    base: str
    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    passages: int = 0
    skipped: dict[str, str] = {}
    notes: dict[str, str] = {}
    hidden: int = 0
    others: dict[str, int] = {}
    without_vectors: str = ""


class Step(Protocol):
    """Is told after each file how many of how many were looked at."""

    def __call__(self, done: int, total: int) -> None: ...


async def ingest_folder(
    store: PassageStore,
    folder: Path,
    base: str,
    embedder: str,
    *,
    dry_run: bool = False,
    on_step: Step = lambda done, total: None,
) -> Ingested:
    """Let a base have what the documents of a folder say, and nothing else; passages get their vectors afterwards.

    Args:
        store: Open.
        folder: With Markdown, text and PDF, in folders too.
        base: The knowledge base's name.
        embedder: The name of the app's embedder.
        dry_run: Only tell what would be done.
        on_step: Called after each file.

    Raises:
        InvalidRequest: the base's name is none.
        CommandRefused: the folder cannot be read; or none of the base's documents is in it, which is more often another
            folder than a wish.
    """
    space = space_of_documents(checked_base(base))
    known = await store.sources(space)  # before the folder: what another one adds meanwhile is not taken for gone
    found = await asyncio.to_thread(look_into, folder)
    if known and known.keys().isdisjoint(found.documents):
        raise CommandRefused(
            f"none of the {len(known)} documents of the base {base!r} is in {str(folder)!r}, and it would lose all: "
            "name their folder, or give this one a base of its own with --base, or take the base away with --remove"
        )
    told = _Told(found)
    for done, path in enumerate(found.documents, 1):
        try:
            digest, read = await asyncio.to_thread(_read, folder, path, known.get(path))
        except Unreadable as error:
            told.skipped[path] = str(error)
        else:
            if told.add(path, known, read) and not dry_run:
                chunks = read.chunks if read is not None else []
                await store.replace_source(space, path, digest, [*_passages(space, path, chunks)], embedder)
        on_step(done, len(found.documents))
    for path in _left(known, found):
        told.removed.append(path)
        if not dry_run:
            await store.replace_source(space, path, "", (), embedder)
    return told.ingested(base)


async def remove_base(store: PassageStore, base: str, *, dry_run: bool = False) -> Ingested:
    """Take a whole knowledge base away; raise `InvalidRequest` when the name is none."""
    space = space_of_documents(checked_base(base))
    known = await store.sources(space)
    if not dry_run:
        await store.clear_space(space)
    return Ingested(base=base, removed=tuple(sorted(known)))


class _Told:
    """What is to be told in the end."""

    def __init__(self, found: Found) -> None:
        self.found = found
        self.new: list[str] = []
        self.changed: list[str] = []
        self.unchanged: list[str] = []
        self.removed: list[str] = []
        self.passages = 0
        self.skipped = dict(found.skipped)
        self.notes: dict[str, str] = {}

    def add(self, path: str, known: dict[str, str], read: Read | None) -> bool:
        """Take a file in; return whether the base has to be changed for it. None is one that it has as it is."""
        if read is None:
            self.unchanged.append(path)
            return False
        if read.note:
            self.notes[path] = read.note
        self.passages += len(read.chunks)
        if not read.chunks:
            self.skipped[path] = "there is nothing in it"
            if path in known:
                self.removed.append(path)
            return path in known
        (self.changed if path in known else self.new).append(path)
        return True

    def ingested(self, base: str) -> Ingested:
        return Ingested(
            base=base,
            new=tuple(self.new),
            changed=tuple(self.changed),
            unchanged=tuple(self.unchanged),
            removed=tuple(sorted(self.removed)),
            passages=self.passages,
            skipped=self.skipped,
            notes=self.notes,
            hidden=self.found.hidden,
            others=self.found.others,
        )


def _read(folder: Path, path: str, known: str | None) -> tuple[str, Read | None]:
    """Return a file's digest, and what it says unless that is known."""
    content = read_file(folder, path)
    digest = digest_of(content)
    return digest, None if digest == known else read_document(kind_of(path), content)


def _left(known: dict[str, str], found: Found) -> list[str]:
    """Return what the folder does not have any more; of a folder that cannot be read nobody knows it."""
    closed = tuple(path for path in found.skipped if path.endswith("/"))
    there = set(found.documents)
    return [path for path in sorted(known) if path not in there and not path.startswith(closed)]


def _passages(space: str, path: str, chunks: Sequence[Chunk]) -> Iterator[NewPassage]:
    """Give the passages of a file. One is named by what it says, so that it keeps its vector wherever it moves."""
    times: Counter[Chunk] = Counter()
    for chunk in chunks:
        times[chunk] += 1
        name = _digest(path, chunk.place, chunk.text, str(times[chunk]))
        yield NewPassage(
            id=f"doc_{_digest(space, name)[:26]}",
            name=name,
            text=chunk.text,
            metadata=encode_json({"place": chunk.place}),
            source=path,
            digest=digest_of_text(chunk.text),
        )


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]


class KnowledgeBases:
    """The knowledge bases of an app, for who fills them: its store, and what makes vectors."""

    def __init__(self, store: PassageStore, embedder: str, keeping: MemoryKeeping) -> None:
        self._store = store
        self._embedder = embedder
        self._keeping = keeping

    async def ingest(
        self,
        folder: Path,
        base: str,
        *,
        dry_run: bool = False,
        on_step: Step = lambda done, total: None,
        on_made: Callable[[int], None] = lambda count: None,
    ) -> Ingested:
        """Do as `ingest_folder` does, and make the vectors of all that has none; `on_made` hears how many more."""
        ingested = await ingest_folder(self._store, folder, base, self._embedder, dry_run=dry_run, on_step=on_step)
        if dry_run:
            return ingested
        try:
            await self._keeping.embed_all(on_made)
        except ModelFailed as error:
            return replace(ingested, without_vectors=str(error))
        return ingested

    async def remove(self, base: str, *, dry_run: bool = False) -> Ingested:
        """Take a whole knowledge base away; raise `InvalidRequest` when the name is none."""
        return await remove_base(self._store, base, dry_run=dry_run)


@asynccontextmanager
async def open_bases(profile: str | None = None) -> AsyncGenerator[KnowledgeBases, None]:
    """Open the store of the app in the current folder, and make it if there is none; the app's code is not imported.

    Args:
        profile: Whose store; by default what `AMOXI_PROFILE` says, else production's.

    Raises:
        ConfigError: settings are unknown or bad, or the database cannot hold the embedder's vectors.
        DeclarationError: the folder has no app.
        StoreDamaged, StoreUnavailable: the store cannot be used.
    """
    settings = load_settings(profile=profile)
    require_package(settings)
    embedder, store = embedder_of(settings), make_store(settings)
    try:
        await store.open(lambda events: None)
        embedding = Embedding(embedder)
        memories = Memories(store, embedding, Redaction(NO_HOOKS), most=settings.ai.memory.most)
        await memories.prepare()
        keeping = MemoryKeeping(store, memories, embedding, engine_settings_of(settings), SystemClock())
        yield KnowledgeBases(store, embedder.name, keeping)
    finally:
        await embedder.aclose()
        await store.close()
