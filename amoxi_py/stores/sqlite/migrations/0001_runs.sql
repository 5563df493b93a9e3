-- Times are whole milliseconds since 1970 (of the lease clock in `worker`). Keys that leave the database in leases,
-- log positions or the tail of events are never used twice, hence AUTOINCREMENT.

CREATE TABLE worker (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    expires_at INTEGER NOT NULL,
    boot TEXT,                            -- the machine's boot that the lease clock belongs to
    claims INTEGER NOT NULL DEFAULT 0     -- number of its last claim that got something
) STRICT;

CREATE TABLE conversation (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    principal TEXT NOT NULL,
    agent TEXT NOT NULL,
    title TEXT NOT NULL,
    last_seq INTEGER NOT NULL,
    held_until INTEGER,                   -- until then the worker of a cancelled run may still be busy with it
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE INDEX conversation_principal ON conversation (principal);

CREATE TABLE run (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    conversation INTEGER NOT NULL,
    principal TEXT NOT NULL,
    facts TEXT NOT NULL,                  -- of the principal, beside its id, as JSON
    status TEXT NOT NULL,
    wake_at INTEGER,                      -- when it may be claimed; NULL when something else must happen first
    waits TEXT,                           -- kinds of what it waits for, as JSON
    worker INTEGER,                       -- the last one that claimed it
    fence INTEGER NOT NULL DEFAULT 0,
    claim INTEGER,                        -- the worker's number of that claim
    changes INTEGER NOT NULL DEFAULT 0,   -- number of the last change under that claim
    attempt INTEGER NOT NULL DEFAULT 0,
    crashes INTEGER NOT NULL DEFAULT 0,
    model_failures INTEGER NOT NULL DEFAULT 0,
    requests INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    first_seq INTEGER NOT NULL,
    ended_seq INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    parent_call TEXT,
    instructions TEXT,                    -- what the agent's method said for this run
    error TEXT,
    result TEXT
) STRICT;

CREATE INDEX run_conversation ON run (conversation);
CREATE INDEX run_principal ON run (principal);
CREATE INDEX run_open ON run (conversation) WHERE status IN ('queued', 'running', 'waiting');
CREATE INDEX run_due ON run (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX run_leased ON run (worker) WHERE status = 'running';

-- The order of a conversation is (run, turn); turn 0 is the person's message, the others are replies.
CREATE TABLE message (
    run INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    status TEXT,                          -- NULL is `complete`
    files TEXT,
    text TEXT NOT NULL,
    UNIQUE (run, turn)
) STRICT;

CREATE TABLE tool_call (
    run INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    n INTEGER NOT NULL,
    tool TEXT NOT NULL,
    effect TEXT NOT NULL,
    status TEXT NOT NULL,
    tries INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    arguments TEXT NOT NULL,
    result TEXT,
    UNIQUE (run, turn, n)
) STRICT;

CREATE TABLE step (
    run INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    n INTEGER NOT NULL,
    name TEXT NOT NULL,
    failed INTEGER NOT NULL,
    value TEXT NOT NULL,
    UNIQUE (run, turn, n, name)
) STRICT;

CREATE TABLE approval (
    run INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    n INTEGER NOT NULL,
    approver TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    decision TEXT,
    decided_at INTEGER,
    decided_by TEXT,
    reason TEXT,
    arguments TEXT,
    UNIQUE (run, turn, n)
) STRICT;

-- An event is a type and a reference; only what no other row holds is in its data.
CREATE TABLE event (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    run INTEGER NOT NULL,
    type INTEGER NOT NULL,
    turn INTEGER,
    n INTEGER,
    data TEXT,
    UNIQUE (conversation, seq)
) STRICT;

CREATE INDEX event_delta ON event (run) WHERE type = 4;

-- What is left of an erased run for a few minutes: its terminal event, so that other processes hear that it ended.
CREATE TABLE erased_run (
    run INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    event INTEGER NOT NULL,
    erased_at INTEGER NOT NULL
) STRICT;

CREATE INDEX erased_run_age ON erased_run (erased_at);

CREATE TABLE idempotency_key (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    principal TEXT NOT NULL,
    agent TEXT NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    run_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    UNIQUE (principal, agent, name)
) STRICT;

CREATE TABLE secret (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

CREATE TABLE file (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    principal TEXT NOT NULL,
    name TEXT NOT NULL,
    media_type TEXT NOT NULL,
    size INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
