-- Whose runs are due, one principal after the other: who has thousands of them must not be read past to find the next.

CREATE INDEX run_due_principal ON run (principal, wake_at) WHERE status = 'queued' AND wake_at IS NOT NULL;
