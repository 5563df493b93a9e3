-- Open approvals by who may decide. `whose` is the owner of the run, or the tenant's part of it where a role or a function
-- decides; it is NULL where nothing is to be decided any more, so that the index holds what is open alone.

ALTER TABLE approval ADD COLUMN whose TEXT;

UPDATE approval
SET whose = CASE WHEN approver = 'owner' THEN r.principal
        ELSE substr(r.principal, instr(r.principal || char(31), char(31))) END
FROM run AS r
WHERE r.key = approval.run AND approval.decision IS NULL AND r.status IN ('queued', 'running', 'waiting');

CREATE INDEX approval_open ON approval (approver, whose, run, turn, n) WHERE whose IS NOT NULL;
