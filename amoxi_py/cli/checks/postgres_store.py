"""The store in PostgreSQL: its schema and this role's rights, and what the promises need of the server."""

from __future__ import annotations

from collections.abc import Iterator

from amoxi_py.app.store import place_of_store
from amoxi_py.cli.checks.amount import amount
from amoxi_py.cli.checks.finding import Finding
from amoxi_py.cli.checks.migrations import tell_migrations
from amoxi_py.config.database import wrong_with
from amoxi_py.config.settings import DATABASE_URL, Settings
from amoxi_py.errors import AmoxiError
from amoxi_py.stores.postgres.connection import OLDEST_SERVER
from amoxi_py.stores.postgres.inspection import Places, StoreState, inspect_store

_LISTEN_URL = "ai.store.listen-url"
_ENCODING = "UTF8"


def look_at_postgres_store(settings: Settings) -> Iterator[Finding]:
    """Look at the store in PostgreSQL, as the role of `DATABASE_URL`."""
    url = settings.provider.get(DATABASE_URL)
    listen_url = settings.listen_url
    if url is None or wrong_with(url) or (listen_url is not None and wrong_with(listen_url)):
        text = "the store could not be looked at: the settings name no database that can be asked"
        yield Finding(check="store", level="error", text=text, fix=f"correct {DATABASE_URL} and {_LISTEN_URL!r} first")
        return
    try:
        state = inspect_store(url, settings.ai.store.schema_, listen_url=listen_url)
    except AmoxiError as error:
        reason, _, way_out = str(error).rpartition("; ")
        text = f"{place_of_store(settings)}: {reason}"
        yield Finding(check="store", level="error", text=text, fix=f"{way_out} ({DATABASE_URL} holds its address)")
        return
    yield from tell(state, settings)


def tell(state: StoreState, settings: Settings) -> Iterator[Finding]:
    """Say what the state of a store means for an app with these settings."""
    schema = settings.ai.store.schema_
    yield from _look_at_schema(state, place_of_store(settings), schema)
    yield from _look_at_migrations(state, schema)
    yield from _look_at_server(state)
    yield from _look_at_durability(state)
    yield from _look_at_connections(state, settings.ai.store.connections)
    yield from _look_at_news(state, settings.listen_url is not None)
    yield from _look_at_vectors(state)


def connections_in_words(found: Places, wanted: int) -> str:
    """Say how many connections there can be, and how many of them a process of these settings takes."""
    return (
        f"the role {found.role!r} can have {found.places} connections here ({found.places_taken} of the server's are "
        f"in use), a process opens {wanted} at most"
    )


def _look_at_schema(state: StoreState, place: str, schema: str) -> Iterator[Finding]:
    role = f'"{state.role}"'
    if not state.may_look:
        yield Finding(
            check="store",
            level="error",
            text=f"{place}: the role {state.role!r} may not use the schema",
            fix=f'as its owner: GRANT USAGE ON SCHEMA "{schema}" TO {role}',
        )
    elif state.tables_in_the_way:
        yield Finding(
            check="store",
            level="error",
            text=f"{place} holds no store, but tables of something else: {', '.join(state.tables_in_the_way)}",
            fix="set 'ai.store.schema' to the name of a schema that is the store's alone",
        )
    elif state.closed_tables:
        yield Finding(
            check="store",
            level="error",
            text=f"{place}: the role {state.role!r} may not read and write {', '.join(state.closed_tables)}",
            fix=f'as their owner: GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "{schema}" TO {role}',
        )
    elif state.closed_sequences:
        yield Finding(
            check="store",
            level="error",
            text=f"{place}: the role {state.role!r} may not read {', '.join(state.closed_sequences)}",
            fix=f'as their owner: GRANT SELECT ON ALL SEQUENCES IN SCHEMA "{schema}" TO {role}',
        )
    elif state.migrated:
        yield Finding(check="store", level="ok", text=f"{place} is there, {amount(state.size)}")
    elif state.may_create and state.tables:
        yield Finding(
            check="store",
            level="warning",
            text=f"{place} is not there yet: the first start makes it, beside {', '.join(state.tables)}",
            fix="set 'ai.store.schema' to the name of a schema that is the store's alone",
        )
    elif state.may_create:
        yield Finding(check="store", level="ok", text=f"{place} is not there yet: the first start makes it")
    else:
        way = (
            f'GRANT CREATE ON SCHEMA "{schema}" TO {role}'
            if state.schema_made
            else f'CREATE SCHEMA "{schema}" AUTHORIZATION {role}'
        )
        yield Finding(
            check="store",
            level="error",
            text=f"{place} is not there yet, and the role {state.role!r} may not make it",
            fix=f"as the owner of the database: {way}; or run amoxi migrate with the address of a role that may",
        )


def _look_at_migrations(state: StoreState, schema: str) -> Iterator[Finding]:
    if not state.migrated:
        return
    if state.missing and (not state.may_create or state.tables_of_others):
        yield Finding(
            check="migrations",
            level="error",
            text=f"migrations are missing, which the role {state.role!r} may not make: {', '.join(state.missing)}",
            fix=f"run amoxi migrate with the address of the role that owns the schema {schema!r}",
        )
    elif state.missing or state.newer or (state.may_look and "migration" not in state.closed_tables):
        yield tell_migrations(state.missing, state.newer)


def _look_at_server(state: StoreState) -> Iterator[Finding]:
    oldest = OLDEST_SERVER // 10_000
    if state.version_number < OLDEST_SERVER:
        text = f"PostgreSQL {state.version} is too old"
        yield Finding(check="database", level="error", text=text, fix=f"use PostgreSQL {oldest} or newer")
    else:
        yield Finding(check="database", level="ok", text=f"PostgreSQL {state.version}")
    if state.encoding != _ENCODING:
        yield Finding(
            check="database",
            level="error",
            text=f"the database's encoding is {state.encoding}, which cannot hold every text",
            fix=f"make one with CREATE DATABASE ... ENCODING '{_ENCODING}' TEMPLATE template0",
        )
    if state.replica:
        text = "this is a standby, which takes no writes"
        fix = f"let {DATABASE_URL} name the primary; of several hosts target_session_attrs=read-write finds it"
        yield Finding(check="database", level="error", text=text, fix=fix)
    elif state.reads_only:
        yield Finding(
            check="database",
            level="error",
            text=f"transactions of the role {state.role!r} only read: default_transaction_read_only is on",
            fix=f'ALTER ROLE "{state.role}" SET default_transaction_read_only = off',
        )


def _look_at_durability(state: StoreState) -> Iterator[Finding]:
    losses = list(_losses(state))
    yield from losses
    if not losses:
        kept = "by the server and a standby" if state.synchronous_standbys else "by the server; no standby is attached"
        yield Finding(check="durability", level="ok", text=f"what is committed is kept {kept}")


def _losses(state: StoreState) -> Iterator[Finding]:
    """Yield what can lose a commit that the database has confirmed."""
    off = [name for name, is_on in (("fsync", state.fsync), ("full_page_writes", state.full_page_writes)) if not is_on]
    if off:
        yield Finding(
            check="durability",
            level="error",
            text=f"{' and '.join(off)} off: what is committed can be lost when the machine fails",
            fix=f"set {' and '.join(f'{name} = on' for name in off)} in postgresql.conf",
            starts=True,
        )
    if state.synchronous_commit in ("off", "local"):
        what = "the database crashes" if state.synchronous_commit == "off" else "a standby takes over"
        yield Finding(
            check="durability",
            level="warning",
            text=f"synchronous_commit is {state.synchronous_commit}: when {what}, what was committed can be lost",
            fix=f'ALTER ROLE "{state.role}" SET synchronous_commit = on',
        )
    if state.standbys and not state.synchronous_standbys:
        count = "a standby is" if state.standbys == 1 else f"{state.standbys} standbys are"
        yield Finding(
            check="durability",
            level="warning",
            text=f"{count} attached, and none is synchronous: a failover can lose what was committed",
            fix="set synchronous_standby_names, such as 'ANY 1 (*)'",
        )


def _look_at_connections(state: StoreState, wanted: int) -> Iterator[Finding]:
    fit = state.places // wanted
    processes = "1 process" if fit == 1 else f"{fit} processes"
    text = f"{connections_in_words(state, wanted)}: enough for {processes}"
    if fit == 0:
        fix = f"raise max_connections, or the role's limit, to {wanted} or more; or lower 'ai.store.connections'"
        yield Finding(check="connections", level="error", text=text, fix=fix, starts=True)
    elif fit == 1:
        fix = "raise max_connections, or lower 'ai.store.connections': a deploy has an old process and a new one"
        yield Finding(check="connections", level="warning", text=text, fix=fix)
    else:
        yield Finding(check="connections", level="ok", text=text)


def _look_at_news(state: StoreState, has_listen_url: bool) -> Iterator[Finding]:
    if state.replica:
        return
    place = repr(_LISTEN_URL) if has_listen_url else DATABASE_URL
    if state.deaf is None:
        yield Finding(check="news", level="ok", text=f"what one server commits is heard by the others ({place})")
        return
    yield Finding(
        check="news",
        level="warning",
        text=f"LISTEN does not work over {place}, so servers look for news every 250 ms: {state.deaf}",
        fix=f"let {_LISTEN_URL!r} be an address of the database itself, past any pooler in transaction mode",
    )


def _look_at_vectors(state: StoreState) -> Iterator[Finding]:
    if state.vector_made is not None:
        yield Finding(check="pgvector", level="ok", text=f"pgvector {state.vector_made} is there")
    elif state.vector_available is not None:
        text = f"pgvector {state.vector_available} is on the server, but not made in the database {state.database!r}"
        fix = "a start makes it where its role may; else CREATE EXTENSION vector, as a role that may"
        yield Finding(check="pgvector", level="note", text=text, fix=fix)
    else:
        text = "pgvector is not on the server; only the search of memories by meaning needs it"
        yield Finding(check="pgvector", level="note", text=text, fix="if you need it: install pgvector on the server")
