-- What calls wait for: a person's answer, a time, a signal, or a run that they asked. Each wait is over once.

CREATE TABLE @wait (
    run bigint NOT NULL,
    created_at bigint NOT NULL,
    until bigint,
    turn integer NOT NULL,
    n integer NOT NULL,
    k integer NOT NULL,                   -- its place among the waits of its call, from 1
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    schema text,
    value text,                           -- the answer or the payload; NULL while there is none
    given_by text COLLATE "C",
    PRIMARY KEY (run, turn, n, k)
);

ALTER TABLE @tool_call ADD COLUMN waits integer;   -- place of its last wait; the only one that can be open

CREATE INDEX tool_call_waits ON @tool_call (run, turn, n, waits) WHERE waits IS NOT NULL;

-- Signals by their ids, so that one that is sent again is known; what nothing waited for is kept with what it says.
CREATE TABLE @kept_signal (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run bigint NOT NULL,
    created_at bigint NOT NULL,
    id text COLLATE "C" NOT NULL UNIQUE,
    name text COLLATE "C" NOT NULL,
    given_by text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,     -- of the payload
    payload text                          -- NULL when a wait has it
);

CREATE INDEX kept_signal_run ON @kept_signal (run);
CREATE INDEX kept_signal_open ON @kept_signal (run, name, key) WHERE payload IS NOT NULL;

-- A text in place of all messages of a thread up to a turn of a run. `thread` is the child run that the thread is of,
-- or 0 for the conversation's own.
CREATE TABLE @summary (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    conversation bigint NOT NULL,
    thread bigint NOT NULL,
    run bigint NOT NULL,
    created_at bigint NOT NULL,
    turn integer NOT NULL,
    text text NOT NULL
);

CREATE INDEX summary_thread ON @summary (conversation, thread, key);

-- What a model wants to have back with its reply, such as signed reasoning.
ALTER TABLE @message ADD COLUMN kept text;

ALTER TABLE @run ADD COLUMN cached_tokens bigint NOT NULL DEFAULT 0;
ALTER TABLE @run ADD COLUMN written_tokens bigint NOT NULL DEFAULT 0;
ALTER TABLE @run ADD COLUMN cost bigint NOT NULL DEFAULT 0;   -- in billionths of a US dollar
