-- Runs that calls of other runs ask for: they are in the same conversation, each with messages of its own.

ALTER TABLE run ADD COLUMN agent TEXT;            -- of a child run; that of the others is the conversation's
ALTER TABLE run ADD COLUMN root INTEGER;          -- the run above all, and the one right above with its call
ALTER TABLE run ADD COLUMN parent INTEGER;
ALTER TABLE run ADD COLUMN parent_turn INTEGER;
ALTER TABLE run ADD COLUMN parent_n INTEGER;
ALTER TABLE run ADD COLUMN child_ended INTEGER;   -- 1 when the end of a child came while the run was being executed

CREATE INDEX run_child ON run (root) WHERE root IS NOT NULL;
CREATE INDEX run_open_child ON run (conversation)
    WHERE status IN ('queued', 'running', 'waiting') AND root IS NOT NULL;

ALTER TABLE event ADD COLUMN hidden INTEGER;      -- 1 for an own event of a child run
ALTER TABLE event ADD COLUMN source INTEGER;      -- the child run that turn and n are of, in an event of its root

-- A worker of a version before this one takes a child run for a run of the conversation's agent. What it claims of them
-- goes back into the line at once, and it does not begin a run whose worker it is not.
ALTER TABLE worker ADD COLUMN knows_children INTEGER NOT NULL DEFAULT 0;

CREATE TRIGGER run_child_claimed AFTER UPDATE OF fence ON run
WHEN NEW.root IS NOT NULL AND NEW.status = 'running' AND NEW.fence > OLD.fence
    AND NOT EXISTS (SELECT 1 FROM worker WHERE worker.key = NEW.worker AND worker.knows_children)
BEGIN
    UPDATE run SET status = 'queued', worker = NULL, wake_at = NEW.updated_at + 1000 WHERE key = NEW.key;
END;
