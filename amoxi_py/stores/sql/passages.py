"""Passages in spaces: written under one name for each space, found by their words and their vectors.

Every write raises the version of its space, in the same transaction. A space is there as long as anything is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from amoxi_py.domain.encoding import clean_text
from amoxi_py.domain.ids import new_id
from amoxi_py.errors import ConfigError, Conflict
from amoxi_py.ports.passages import NewPassage, NewVector, Passage, Unembedded
from amoxi_py.ports.views import Page
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.cursor import decode_cursor, encode_cursor
from amoxi_py.stores.sql.rows import json_rows
from amoxi_py.stores.sql.times import seconds
from amoxi_py.stores.sql.transaction import Row, Transaction
from amoxi_py.stores.sql.words import BEGINS, wanted_words, words_of

AT_ONCE = 200
"""The most that a piece of a longer deletion deletes."""
_RANK_OF_FIRST = 60
_FEWEST_CANDIDATES = 40

StoredVector = Callable[[bytes], bytes]
"""Gives the form in which a dialect stores a vector."""
Nearest = Callable[[Transaction, int, int, int], Sequence[int] | None]
"""Gives the passages of a space (key and version) whose vectors are nearest, the nearest first, and at most so many.

None where vectors cannot be compared.
"""


def name_of_space(space: str) -> str:
    """Return what a verb names that writes to a space."""
    return f"passages\0{space}"


def find_space(tx: Transaction, space: str) -> tuple[int, int] | None:
    """Return the key of a space and its version; None when nothing is in it."""
    rows = tx.rows("find_space", name=space)
    return (rows[0][0], rows[0][1]) if rows else None


def keep_passages(
    batch: Batch,
    space: str,
    passages: Sequence[NewPassage],
    embedder: str,
    at_most: int | None,
    now: int,
    stored: StoredVector,
) -> tuple[tuple[Passage, ...], bool]:
    """Store passages, each in place of the one of its name; return them, and whether any text is gone by that."""
    tx, key = batch.tx, _space_to_write(batch, space)
    passages = [_clean(one) for one in passages]
    keys, gone = _write(tx, key, passages, embedder, now, stored, at_most)
    tx.run("touch_spaces", rows=json_rows([key]))
    found = load_passages(tx, key, keys.values())
    return tuple(found[keys[one.name]] for one in passages), gone


def replace_source(
    batch: Batch,
    space: str,
    source: str,
    digest: str,
    passages: Sequence[NewPassage],
    embedder: str,
    stored: StoredVector,
) -> bool:
    """Let these be all passages of a source; return whether any text is gone by that."""
    source = clean_text(source)
    passages = [replace(_clean(one), source=source) for one in passages]
    if not passages and find_space(batch.tx, space) is None:
        return False
    tx, key = batch.tx, _space_to_write(batch, space)
    names = {one.name for one in passages}
    old = [one for one, name in tx.rows("passages_of_source", space=key, source=source) if name not in names]
    _delete(tx, old)
    gone = bool(old)
    if passages:
        gone |= _write(tx, key, passages, embedder, batch.now, stored)[1]
        tx.run("keep_source", space=key, source=source, digest=digest)
    else:
        tx.run("drop_source", space=key, source=source)
    _leave(tx, [key])
    return gone


def sources(tx: Transaction, space: str) -> dict[str, str]:
    """Return the sources of a space with their digests."""
    found = find_space(tx, space)
    return {} if found is None else dict(tx.rows("sources", space=found[0]))


def forget_passages(batch: Batch, space: str, names: Sequence[str]) -> int:
    """Delete those of these names; return how many there were."""
    wanted = list({clean_text(name) for name in names})
    return _forget(batch.tx, space, lambda key: batch.tx.rows("passages_named", space=key, rows=json_rows(wanted)))


def forget_passage(batch: Batch, space: str, id: str) -> int:
    """Delete one by its id; return whether it was there."""
    wanted = json_rows([clean_text(id)])
    return _forget(batch.tx, space, lambda key: batch.tx.rows("passages_with_ids", space=key, rows=wanted))


def clear_some(batch: Batch, space: str) -> int:
    """Delete some of a space, and its sources with the last of them; return how many.

    Until then a source has no digest: whoever ends between pieces leaves none that seems to be there as it was.
    """

    def some(key: int) -> list[Row]:
        rows = batch.tx.rows("some_passages", space=key, limit=AT_ONCE)
        batch.tx.run("unsettle_sources" if len(rows) == AT_ONCE else "drop_sources", space=key)
        return rows

    return _forget(batch.tx, space, some)


def list_passages(tx: Transaction, space: str, limit: int, cursor: str | None) -> Page[Passage]:
    """Return passages, the one that was written last first."""
    updated_at, after = decode_cursor("passages", cursor, 2)
    found = find_space(tx, space)
    if found is None:
        return Page(items=())
    rows = tx.rows("list_passages", space=found[0], updated_at=updated_at, key=after, limit=limit + 1)
    more = encode_cursor("passages", rows[limit - 1][-1], rows[limit - 1][0]) if len(rows) > limit else None
    return Page(items=tuple(_passage(row) for row in rows[:limit]), next_cursor=more)


def search_passages(
    tx: Transaction, space: str, words: str, limit: int, nearest: Nearest | None
) -> tuple[Passage, ...]:
    """Return those that fit best, by their words and, with `nearest`, by their vectors."""
    found = find_space(tx, space)
    if found is None or limit < 1:
        return ()
    key, version = found
    most = max(_FEWEST_CANDIDATES, 4 * limit)
    rankings: list[Sequence[int]] = []
    wanted = wanted_words(words)
    if wanted:
        rows = tx.rows("passages_by_words", space=key, words=json_rows(wanted), begins=BEGINS, limit=most)
        rankings.append([passage for (passage,) in rows])
    near = None if nearest is None else nearest(tx, key, version, most)
    if near is not None:
        rankings.append(near)
    best = merge_rankings(rankings)[:limit]
    loaded = load_passages(tx, key, [passage for passage, _ in best])
    return tuple(replace(loaded[passage], score=score) for passage, score in best if passage in loaded)


def merge_rankings(rankings: Sequence[Sequence[int]]) -> list[tuple[int, float]]:
    """Return what is in any of some rankings, the best first, with a score that is 1 for the first of all of them.

    Reciprocal rank fusion (Cormack, Clarke, Buettcher 2009): only places count, so what the rankings measure need not
    be comparable.
    """
    scores: dict[int, float] = {}
    for ranking in rankings:
        for place, passage in enumerate(ranking):
            scores[passage] = scores.get(passage, 0.0) + 1 / (_RANK_OF_FIRST + 1 + place)
    best = len(rankings) / (_RANK_OF_FIRST + 1)
    merged = [(passage, min(1.0, score / best)) for passage, score in scores.items()]
    return sorted(merged, key=lambda one: (-one[1], one[0]))


def unembedded(tx: Transaction, embedder: str, limit: int) -> tuple[Unembedded, ...]:
    """Return passages without a vector of an embedder, those without any first."""
    rows = tx.rows("never_embedded", limit=limit)
    if len(rows) < limit:
        rows += tx.rows("embedded_by_others", embedder=embedder, limit=limit - len(rows))
    return tuple(Unembedded(key=key, version=version, text=text) for key, version, text in rows)


def spaces_of_passages(tx: Transaction, keys: Iterable[int]) -> list[str]:
    """Return the names of the spaces that passages are in."""
    return sorted({name for *_, name in tx.rows("places_of_passages", rows=json_rows(sorted(keys)))})


def keep_vectors(batch: Batch, embedder: str, vectors: Sequence[NewVector], stored: StoredVector) -> None:
    """Store vectors of texts that are still the same."""
    tx = batch.tx
    rows = tx.rows("places_of_passages", rows=json_rows(sorted({one.key for one in vectors})))
    places = {(key, version): space for key, version, space, _ in rows}
    fitting = [one for one in vectors if (one.key, one.version) in places]
    for one in fitting:
        space = places[one.key, one.version]
        tx.run("keep_vector", passage=one.key, space=space, embedder=embedder, vector=stored(one.vector))
    if fitting:
        tx.run("settle_embedders", rows=json_rows(sorted({one.key for one in fitting})), embedder=embedder)
        tx.run("touch_spaces", rows=json_rows(sorted({places[one.key, one.version] for one in fitting})))


def vectors_of_others(tx: Transaction, embedder: str, limit: int) -> list[Row]:
    """Return some vectors that are not of this embedder: key, passage, space, its name."""
    return tx.rows("vectors_of_others", embedder=embedder, limit=limit)


def drop_vectors(batch: Batch, embedder: str, vectors: Sequence[Row]) -> None:
    """Delete vectors."""
    tx = batch.tx
    tx.run("drop_vectors", rows=json_rows([key for key, *_ in vectors]))
    tx.run("settle_embedders", rows=json_rows(sorted({passage for _, passage, *_ in vectors})), embedder=embedder)
    tx.run("touch_spaces", rows=json_rows(sorted({space for *_, space, _ in vectors})))


def old_memories(tx: Transaction, before: int, limit: int) -> list[Row]:
    """Return some memories of principals that were written last before a time: key, space, its name."""
    return tx.rows("old_memories", before=before, limit=limit)


def purge_memories(batch: Batch, memories: Sequence[Row], before: int) -> int:
    """Delete those of them that were not written since; return how many."""
    tx = batch.tx
    keys = [key for (key,) in tx.rows("still_old", rows=json_rows([key for key, *_ in memories]), before=before)]
    _delete(tx, keys)
    _leave(tx, {space for _, space, _ in memories})
    return len(keys)


def refuse_other_size(embedder: str, dimensions: int, rows: Sequence[Row]) -> None:
    """Raise `ConfigError` when an embedder has stored vectors of another size."""
    if rows and rows[0][0] != dimensions:
        raise ConfigError(
            f"the embedder {embedder!r} makes vectors of {dimensions} numbers, and those of this name that are stored "
            f"have {rows[0][0]}: they cannot be compared; give it another name"
        )


def load_passages(tx: Transaction, space: int, keys: Iterable[int]) -> dict[int, Passage]:
    """Return passages of a space by their keys."""
    wanted = list(keys)
    return {row[0]: _passage(row) for row in tx.rows("passages", space=space, rows=json_rows(wanted))} if wanted else {}


def _space_to_write(batch: Batch, space: str) -> int:
    batch.tx.run("make_space", name=space)
    found = find_space(batch.tx, space)
    assert found is not None
    return found[0]


def _write(
    tx: Transaction,
    space: int,
    passages: Sequence[NewPassage],
    embedder: str,
    now: int,
    stored: StoredVector,
    at_most: int | None = None,
) -> tuple[dict[str, int], bool]:
    """Insert or change passages; return the key of each name, and whether any text is another one now."""
    wanted = {one.name: one for one in passages}
    if not wanted:
        return {}, False
    there = {row[2]: row for row in tx.rows("passages_named", space=space, rows=json_rows(wanted))}
    new = [one for name, one in wanted.items() if name not in there]
    if new and at_most is not None:
        _check_room(tx, space, len(new), at_most)
    reworded = [wanted[name] for name, row in there.items() if wanted[name].text != row[3]]
    stale = [there[one.name][0] for one in reworded if not one.digest or one.digest != there[one.name][4]]
    if there:
        changes = [
            (key, one.source, one.text, one.metadata, one.digest, version + (key in stale), now)
            for name, (key, _, _, _, _, version) in there.items()
            for one in (wanted[name],)
        ]
        tx.run_all("update_passages", changes)
    if reworded:
        tx.run("drop_words", rows=json_rows([there[one.name][0] for one in reworded]))
    if stale:
        tx.run("drop_vectors_of", rows=json_rows(stale))
    keys = {name: row[0] for name, row in there.items()}
    if new:
        ids = _free_ids(tx, space, new)
        rows = [
            (space, ids[one.name], one.name, one.source, one.text, one.metadata, one.digest, now, now) for one in new
        ]
        keys |= zip((one.name for one in new), tx.insert_all("insert_passages", rows), strict=True)
    if new or reworded:
        worded = [(keys[one.name], space, " ".join(_words(one))) for one in (*new, *reworded)]
        tx.run_all("keep_words", worded)
    embedded = [one for one in wanted.values() if one.vector is not None]
    for one in embedded:
        assert one.vector is not None
        tx.run("keep_vector", passage=keys[one.name], space=space, embedder=embedder, vector=stored(one.vector))
    unsettled = {*stale, *(keys[one.name] for one in embedded)}
    if unsettled:
        tx.run("settle_embedders", rows=json_rows(sorted(unsettled)), embedder=embedder)
    return keys, bool(reworded)


def _words(passage: NewPassage) -> list[str]:
    """Return the words that a passage is found by: of a memory those of its name too, which somebody chose."""
    named = passage.source is None and passage.name != passage.id
    return words_of(f"{passage.name} {passage.text}" if named else passage.text)


def _check_room(tx: Transaction, space: int, new: int, at_most: int) -> None:
    """Raise `Conflict` while nothing is changed but for a space that may have been made for this."""
    ((count,),) = tx.rows("count_passages", space=space, limit=at_most + 1)
    if count + new > at_most:
        tx.run("drop_empty_spaces", rows=json_rows([space]))
        raise Conflict(
            f"there is no room for {new} more: at most {at_most} are kept; forget some, or write over one by its key",
            code="memory_full",
        )


def _free_ids(tx: Transaction, space: int, new: Sequence[NewPassage]) -> Mapping[str, str]:
    """Return an id for each name: the given one, unless another passage has it."""
    taken = {held for _, held in tx.rows("passages_with_ids", space=space, rows=json_rows([one.id for one in new]))}
    ids: dict[str, str] = {}
    for one in new:
        ids[one.name] = new_id(one.id.partition("_")[0]) if one.id in taken else one.id
        taken.add(ids[one.name])
    return ids


def _forget(tx: Transaction, space: str, find: Callable[[int], Sequence[Row]]) -> int:
    found = find_space(tx, space)
    if found is None:
        return 0
    keys = [row[0] for row in find(found[0])]
    _delete(tx, keys)
    _leave(tx, [found[0]])
    return len(keys)


def _delete(tx: Transaction, keys: Sequence[int]) -> None:
    if keys:
        rows = json_rows(keys)
        tx.run("drop_words", rows=rows)
        tx.run("drop_vectors_of", rows=rows)
        tx.run("delete_passages", rows=rows)


def _leave(tx: Transaction, spaces: Iterable[int]) -> None:
    """Note that spaces are others than before, and that those are gone in which nothing is left."""
    rows = json_rows(sorted(spaces))
    tx.run("touch_spaces", rows=rows)
    tx.run("drop_empty_spaces", rows=rows)


def _clean(one: NewPassage) -> NewPassage:
    return replace(
        one,
        name=clean_text(one.name),
        text=clean_text(one.text),
        source=None if one.source is None else clean_text(one.source),
    )


def _passage(row: Row) -> Passage:
    _, public_id, name, text, metadata, source, created_at, updated_at = row
    return Passage(
        id=public_id,
        name=name,
        text=text,
        metadata=metadata,
        source=source,
        created_at=seconds(created_at),
        updated_at=seconds(updated_at),
    )
