-- What calls wait for: a person's answer, a time, a signal, or a run that they asked. Each wait is over once.

CREATE TABLE wait (
    run INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    n INTEGER NOT NULL,
    k INTEGER NOT NULL,                   -- its place among the waits of its call, from 1
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    schema TEXT,
    created_at INTEGER NOT NULL,
    until INTEGER,
    value TEXT,                           -- the answer or the payload; NULL while there is none
    given_by TEXT,
    UNIQUE (run, turn, n, k)
) STRICT;

ALTER TABLE tool_call ADD COLUMN waits INTEGER;   -- place of its last wait; the only one that can be open

CREATE INDEX tool_call_waits ON tool_call (run, turn, n, waits) WHERE waits IS NOT NULL;

-- Signals by their ids, so that one that is sent again is known; what nothing waited for is kept with what it says.
CREATE TABLE kept_signal (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    run INTEGER NOT NULL,
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    payload TEXT,                         -- NULL when a wait has it
    digest TEXT NOT NULL,                 -- of the payload
    given_by TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE INDEX kept_signal_run ON kept_signal (run);
CREATE INDEX kept_signal_open ON kept_signal (run, name, key) WHERE payload IS NOT NULL;

-- A text in place of all messages of a thread up to a turn of a run. `thread` is the child run that the thread is of,
-- or 0 for the conversation's own.
CREATE TABLE summary (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation INTEGER NOT NULL,
    thread INTEGER NOT NULL,
    run INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    text TEXT NOT NULL
) STRICT;

CREATE INDEX summary_thread ON summary (conversation, thread, key);

-- What a model wants to have back with its reply, such as signed reasoning.
ALTER TABLE message ADD COLUMN kept TEXT;

ALTER TABLE run ADD COLUMN cached_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN written_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN cost INTEGER NOT NULL DEFAULT 0;   -- in billionths of a US dollar
