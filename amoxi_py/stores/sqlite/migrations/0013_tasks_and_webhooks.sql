-- When runs of callers over A2A came into their status, for lists in that order. It is NULL for all other runs, which pay
-- nothing for it. Triggers write it, so that a process of an older version beside a new one does too.

ALTER TABLE run ADD COLUMN status_at INTEGER;

CREATE INDEX run_task ON run (principal, status_at, key, status, attempt) WHERE status_at IS NOT NULL;

CREATE TRIGGER run_task_begun AFTER INSERT ON run
WHEN NEW.root IS NULL AND substr(NEW.principal, 1, 4) = 'a2a:'
BEGIN
    UPDATE run SET status_at = NEW.updated_at WHERE key = NEW.key;
END;

CREATE TRIGGER run_task_moved AFTER UPDATE OF status ON run
WHEN NEW.status_at IS NOT NULL AND NEW.status <> OLD.status
BEGIN
    UPDATE run SET status_at = NEW.updated_at WHERE key = NEW.key;
END;

-- A task asks for something when a run below it does.
CREATE TRIGGER run_below_task_moved AFTER UPDATE OF status ON run
WHEN NEW.root IS NOT NULL AND substr(NEW.principal, 1, 4) = 'a2a:' AND NEW.status <> OLD.status
    AND 'waiting' IN (NEW.status, OLD.status)
BEGIN
    UPDATE run SET status_at = NEW.updated_at WHERE key = NEW.root;
END;

-- Addresses that are told of runs, how far they were told, and who does it now.
CREATE TABLE webhook (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    run INTEGER NOT NULL,
    id TEXT NOT NULL,
    content TEXT NOT NULL,
    delivered INTEGER NOT NULL DEFAULT 0, -- number in the log
    failures INTEGER NOT NULL DEFAULT 0,
    fence INTEGER NOT NULL DEFAULT 0,
    due_at INTEGER,                       -- when it may be claimed: of a held one, when its lease ends; NULL when over
    over_at INTEGER,
    holder TEXT,
    created_at INTEGER NOT NULL,
    UNIQUE (run, id)
) STRICT;

CREATE INDEX webhook_due ON webhook (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_holder ON webhook (holder) WHERE holder IS NOT NULL;
CREATE INDEX webhook_over ON webhook (over_at) WHERE over_at IS NOT NULL;

-- What belongs to a conversation or to a run goes with it, whatever its kind.
CREATE INDEX record_of ON record (family) WHERE family IS NOT NULL;
