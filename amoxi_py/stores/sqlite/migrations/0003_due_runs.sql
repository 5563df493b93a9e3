-- Due runs by status, so that those are found too that were to wait for a date which is far off because the calendar
-- was set back.

DROP INDEX run_due;
CREATE INDEX run_due ON run (status, wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX run_paused ON run (wake_at) WHERE waits = '["model"]';
