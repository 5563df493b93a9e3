-- When runs of callers over A2A came into their status, for lists in that order. It is NULL for all other runs, which pay
-- nothing for it. Triggers write it, so that a server of an older version beside a new one does too.

ALTER TABLE @run ADD COLUMN status_at bigint;

CREATE INDEX run_task ON @run (principal, status_at, key) INCLUDE (status, attempt) WHERE status_at IS NOT NULL;

CREATE FUNCTION @run_task_moved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.status_at := NEW.updated_at;
    RETURN NEW;
END $$;

CREATE TRIGGER run_task_begun BEFORE INSERT ON @run
FOR EACH ROW WHEN (NEW.root IS NULL AND substr(NEW.principal, 1, 4) = 'a2a:')
EXECUTE FUNCTION @run_task_moved();

CREATE TRIGGER run_task_moved BEFORE UPDATE OF status ON @run
FOR EACH ROW WHEN (NEW.status_at IS NOT NULL AND NEW.status <> OLD.status)
EXECUTE FUNCTION @run_task_moved();

-- A task asks for something when a run below it does. Afterwards: a statement that moves both may not find the task's row
-- changed before its turn.
CREATE FUNCTION @run_below_task_moved() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE @run SET status_at = NEW.updated_at WHERE key = NEW.root;
    RETURN NULL;
END $$;

CREATE TRIGGER run_below_task_moved AFTER UPDATE OF status ON @run
FOR EACH ROW WHEN (NEW.root IS NOT NULL AND substr(NEW.principal, 1, 4) = 'a2a:' AND NEW.status <> OLD.status
    AND 'waiting' IN (NEW.status, OLD.status))
EXECUTE FUNCTION @run_below_task_moved();

-- Addresses that are told of runs, how far they were told, and who does it now.
CREATE TABLE @webhook (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run bigint NOT NULL,
    due_at bigint,                        -- when it may be claimed: of a held one, when its lease ends; NULL when over
    over_at bigint,
    created_at bigint NOT NULL,
    delivered integer NOT NULL DEFAULT 0, -- number in the log
    failures integer NOT NULL DEFAULT 0,
    fence integer NOT NULL DEFAULT 0,
    id text COLLATE "C" NOT NULL,
    holder text COLLATE "C",
    content text NOT NULL,
    UNIQUE (run, id)
);

CREATE INDEX webhook_due ON @webhook (due_at, key) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_holder ON @webhook (holder, key) WHERE holder IS NOT NULL;
CREATE INDEX webhook_over ON @webhook (over_at) WHERE over_at IS NOT NULL;

-- What belongs to a conversation or to a run goes with it, whatever its kind.
CREATE INDEX record_of ON @record (family) WHERE family IS NOT NULL;
