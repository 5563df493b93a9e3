-- What an operator looks for over all principals. Few rows are in these, so that runs that go well pay nothing for them.

CREATE INDEX run_ended_badly ON run (status) WHERE status IN ('failed', 'cancelled');
CREATE INDEX tool_call_open ON tool_call (run, turn, n) WHERE status = 'open';
