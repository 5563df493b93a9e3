-- Times are whole milliseconds since 1970, by the database's clock. `@` stands for the schema, quoted, and a dot.
-- Text that is compared or sorted as bytes is COLLATE "C", so that it is so whatever the database's language is.

CREATE TABLE @worker (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    expires_at bigint NOT NULL,
    id text COLLATE "C" NOT NULL UNIQUE
);

-- Beside the worker's row, so that renewing its lease never waits for a claim.
CREATE TABLE @worker_claim (
    worker bigint PRIMARY KEY REFERENCES @worker ON DELETE CASCADE,
    number bigint NOT NULL                -- of its last claim that got something
);

CREATE TABLE @conversation (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    held_until bigint,                    -- until then the worker of a cancelled run may still be busy with it
    last_seq integer NOT NULL,
    id text COLLATE "C" NOT NULL UNIQUE,
    principal text COLLATE "C" NOT NULL,
    agent text COLLATE "C" NOT NULL,
    title text NOT NULL
) WITH (fillfactor = 70);

CREATE INDEX conversation_principal ON @conversation (principal, key);

CREATE TABLE @run (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    conversation bigint NOT NULL,
    wake_at bigint,                       -- when it may be claimed; NULL when something else must happen first
    worker bigint,                        -- the last one that claimed it
    claim bigint,                         -- the worker's number of that claim
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    requests bigint NOT NULL DEFAULT 0,
    input_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    fence integer NOT NULL DEFAULT 0,
    changes integer NOT NULL DEFAULT 0,   -- number of the last change under that claim
    attempt integer NOT NULL DEFAULT 0,
    crashes integer NOT NULL DEFAULT 0,
    model_failures integer NOT NULL DEFAULT 0,
    first_seq integer NOT NULL,
    ended_seq integer,
    status text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL UNIQUE,
    principal text COLLATE "C" NOT NULL,
    facts text NOT NULL,                  -- of the principal, beside its id, as JSON
    waits text COLLATE "C",               -- kinds of what it waits for, as JSON
    parent_call text COLLATE "C",
    instructions text,                    -- what the agent's method said for this run
    error text,
    result text
) WITH (fillfactor = 70);

CREATE INDEX run_conversation ON @run (conversation, key);
CREATE INDEX run_principal ON @run (principal, key);
CREATE INDEX run_open ON @run (conversation, key) WHERE status IN ('queued', 'running', 'waiting');
CREATE INDEX run_due ON @run (status, wake_at, key) WHERE wake_at IS NOT NULL;
CREATE INDEX run_due_of ON @run (principal, wake_at, key) WHERE status = 'queued' AND wake_at IS NOT NULL;
CREATE INDEX run_paused ON @run (wake_at) WHERE waits = '["model"]';
CREATE INDEX run_leased ON @run (worker, key) WHERE status = 'running';
CREATE INDEX run_ended_badly ON @run (status, key) WHERE status IN ('failed', 'cancelled');

-- The order of a conversation is (run, turn); turn 0 is the person's message, the others are replies.
CREATE TABLE @message (
    run bigint NOT NULL,
    created_at bigint NOT NULL,
    turn integer NOT NULL,
    id text COLLATE "C" NOT NULL,
    status text COLLATE "C",              -- NULL is `complete`
    files text,
    text text NOT NULL,
    PRIMARY KEY (run, turn)
);

CREATE TABLE @tool_call (
    run bigint NOT NULL,
    turn integer NOT NULL,
    n integer NOT NULL,
    tries integer NOT NULL,
    failures integer NOT NULL,
    tool text COLLATE "C" NOT NULL,
    effect text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    arguments text NOT NULL,
    result text,
    PRIMARY KEY (run, turn, n)
);

CREATE TABLE @step (
    run bigint NOT NULL,
    turn integer NOT NULL,
    n integer NOT NULL,
    place bigint GENERATED ALWAYS AS IDENTITY,
    failed boolean NOT NULL,
    name text COLLATE "C" NOT NULL,
    value text NOT NULL,
    PRIMARY KEY (run, turn, n, name)
);

-- `whose` is the owner of the run, or the tenant's part of it where a role or a function decides; it is NULL where
-- nothing is to be decided any more, so that the index holds what is open alone.
CREATE TABLE @approval (
    run bigint NOT NULL,
    turn integer NOT NULL,
    n integer NOT NULL,
    created_at bigint NOT NULL,
    expires_at bigint,
    decided_at bigint,
    approver text COLLATE "C" NOT NULL,
    whose text COLLATE "C",
    decision text COLLATE "C",
    decided_by text COLLATE "C",
    reason text,
    arguments text,
    PRIMARY KEY (run, turn, n)
);

CREATE INDEX approval_waiting ON @approval (run, turn, n) WHERE whose IS NOT NULL;
CREATE INDEX approval_open ON @approval (approver, whose, run, turn, n) WHERE whose IS NOT NULL;

-- An event is a type and a reference; only what no other row holds is in its data. Keys are in the order of commits
-- only within a conversation: whoever goes through all events stops at what has surely been committed.
CREATE TABLE @event (
    key bigint GENERATED ALWAYS AS IDENTITY,
    conversation bigint NOT NULL,
    run bigint NOT NULL,
    seq integer NOT NULL,
    turn integer,
    n integer,
    type smallint NOT NULL,
    data text,
    PRIMARY KEY (conversation, seq)
);

CREATE INDEX event_delta ON @event (run, seq) WHERE type = 4;
CREATE INDEX event_place ON @event USING brin (key) WITH (pages_per_range = 16, autosummarize = on);

-- What is left of an erased run for a few minutes: its terminal event, so that other processes hear that it ended.
CREATE TABLE @erased_run (
    run bigint PRIMARY KEY,
    conversation bigint NOT NULL,
    seq integer NOT NULL,
    erased_at bigint NOT NULL,
    id text COLLATE "C" NOT NULL
);

CREATE INDEX erased_run_age ON @erased_run (erased_at);

CREATE TABLE @idempotency_key (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    created_at bigint NOT NULL,
    principal text COLLATE "C" NOT NULL,
    agent text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    UNIQUE (principal, agent, name)
);

CREATE TABLE @secret (
    name text COLLATE "C" PRIMARY KEY,
    value text NOT NULL
);

-- Handlers of events: how far each has come in the log of all conversations, and who calls it now.
CREATE TABLE @handler (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    position bigint NOT NULL,             -- key of the event up to which all is done
    worker bigint,                        -- who calls it, for as long as that one's lease is current
    fence integer NOT NULL DEFAULT 0,
    name text COLLATE "C" NOT NULL UNIQUE
);

-- What a handler is not done with before its position: all of a conversation's events from `seq` on are still to be
-- told; the tries are those of the first.
CREATE TABLE @behind (
    handler bigint NOT NULL,
    conversation bigint NOT NULL,
    again_at bigint,
    seq integer NOT NULL,
    tries integer NOT NULL,
    PRIMARY KEY (handler, conversation)
);
