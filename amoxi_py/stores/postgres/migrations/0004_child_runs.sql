-- Runs that calls of other runs ask for: they are in the same conversation, each with messages of its own.

ALTER TABLE @run ADD COLUMN agent text COLLATE "C";     -- of a child run; that of the others is the conversation's
ALTER TABLE @run ADD COLUMN root bigint;                -- the run above all, and the one right above with its call
ALTER TABLE @run ADD COLUMN parent bigint;
ALTER TABLE @run ADD COLUMN parent_turn integer;
ALTER TABLE @run ADD COLUMN parent_n integer;
ALTER TABLE @run ADD COLUMN child_ended boolean;        -- true when the end of a child came while the run was executed

CREATE INDEX run_child ON @run (root, key) WHERE root IS NOT NULL;
CREATE INDEX run_open_child ON @run (conversation)
    WHERE status IN ('queued', 'running', 'waiting') AND root IS NOT NULL;

ALTER TABLE @event ADD COLUMN hidden boolean;           -- true for an own event of a child run
ALTER TABLE @event ADD COLUMN source bigint;            -- the child run that turn and n are of, in an event of its root

-- A worker of a version before this one takes a child run for a run of the conversation's agent. What it claims of them
-- goes back into the line at once, and it does not begin a run whose worker it is not.
ALTER TABLE @worker ADD COLUMN knows_children boolean NOT NULL DEFAULT false;

CREATE FUNCTION @run_child_claimed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM @worker AS w WHERE w.key = NEW.worker AND w.knows_children) THEN
        NEW.status := 'queued';
        NEW.worker := NULL;
        NEW.wake_at := NEW.updated_at + 1000;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER run_child_claimed BEFORE UPDATE OF fence ON @run
FOR EACH ROW WHEN (NEW.root IS NOT NULL AND NEW.status = 'running' AND NEW.fence > OLD.fence)
EXECUTE FUNCTION @run_child_claimed();
