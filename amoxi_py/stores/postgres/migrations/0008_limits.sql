-- What is queued or running, of all and of each principal: what a gate counts must not grow with what waits for people.

CREATE INDEX run_in_flight ON @run (principal) WHERE status IN ('queued', 'running');

-- What a principal has asked for in its newest minute, and asked for and used in its newest day (of UTC, counted since
-- 1970). It outlives what it was counted of, and has rows only where there are limits.
CREATE TABLE @principal_usage (
    minute bigint NOT NULL,
    day bigint NOT NULL,
    requests bigint NOT NULL,             -- of the minute
    runs bigint NOT NULL,                 -- of the day, as are tokens and cost (in billionths of a US dollar)
    tokens bigint NOT NULL,
    cost bigint NOT NULL,
    principal text COLLATE "C" PRIMARY KEY
) WITH (fillfactor = 70);

CREATE INDEX principal_usage_day ON @principal_usage (day);
