-- The store's statements in SQLite's dialect. `VALUES :rows` stands for the rows of a whole batch; a parameter `rows`
-- elsewhere is a JSON array of keys, or of places as arrays.

-- ---------------------------------------------------------------- workers

-- name: insert_worker
INSERT INTO worker (id, expires_at, boot, knows_children) VALUES (:id, :expires_at, :boot, 1)
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at
RETURNING key

-- name: workers
SELECT key, id, expires_at <= :lease_now OR boot IS NOT :boot FROM worker

-- name: workers_to_look_at
-- One worker, and all that are dead.
SELECT key, claims, expires_at <= :lease_now OR boot IS NOT :boot FROM worker
WHERE key = :key OR expires_at <= :lease_now OR boot IS NOT :boot

-- name: living_worker
SELECT key FROM worker WHERE key = :key AND expires_at > :lease_now AND boot IS :boot

-- name: renew_worker
UPDATE worker SET expires_at = :expires_at
WHERE key = :key AND expires_at > :lease_now AND boot IS :boot
RETURNING key

-- name: expire_workers
UPDATE worker SET expires_at = 0 WHERE key IN (SELECT value FROM json_each(:rows))

-- name: expire_worker
UPDATE worker SET expires_at = min(expires_at, :lease_now) WHERE id = :id

-- name: record_claim
UPDATE worker SET claims = :number WHERE key = :key

-- name: delete_worker
DELETE FROM worker WHERE key = :key

-- name: delete_idle_workers
DELETE FROM worker
WHERE key IN (SELECT value FROM json_each(:rows))
    AND NOT EXISTS (SELECT 1 FROM run WHERE run.worker = worker.key AND run.status = 'running')

-- name: hand_over_runs
UPDATE run SET status = 'queued', wake_at = :now, updated_at = :now
WHERE worker = :worker AND status = 'running'

-- ---------------------------------------------------------------- claiming

-- name: runs_of_workers
SELECT run.key FROM json_each(:rows) AS j
CROSS JOIN run ON run.worker = j.value AND run.status = 'running'
ORDER BY run.crashes, run.key LIMIT :limit

-- name: suspects_among
-- Of these runs, those that were taken over before and are taken over again.
SELECT r.crashes, r.key FROM json_each(:rows) AS j
CROSS JOIN run AS r ON r.key = j.value AND r.status = 'running' AND r.crashes > 0
ORDER BY 1, 2

-- name: suspects_of_worker
SELECT max(crashes), count(*) FROM run INDEXED BY run_leased
WHERE worker = :worker AND status = 'running' AND crashes > 1

-- name: due_runs
-- The last two are due because the calendar was set back: no queued run, and none that waits for its model, is told
-- to wait for so long.
SELECT wake_at, key, principal FROM run WHERE status = 'queued' AND wake_at <= :now
UNION ALL
SELECT wake_at, key, principal FROM run WHERE status = 'waiting' AND wake_at <= :now
UNION ALL
SELECT wake_at, key, principal FROM run WHERE status = 'queued' AND wake_at > :now + 60000
UNION ALL
SELECT wake_at, key, principal FROM run WHERE waits = '["model"]' AND wake_at > :now + 3600000
ORDER BY 1, 2 LIMIT :limit

-- name: due_runs_by_principal
-- The oldest queued run each of up to :limit principals that come after one, in their order: a walk from one principal
-- to the next.
WITH RECURSIVE w (key, principal) AS (
    SELECT * FROM (
        SELECT key, principal FROM run INDEXED BY run_due_principal
        WHERE status = 'queued' AND wake_at <= :now AND principal > :after
        ORDER BY principal, wake_at, key LIMIT 1
    )
    UNION ALL
    SELECT r.key, r.principal FROM w CROSS JOIN run AS r ON r.key = (
        SELECT n.key FROM run AS n INDEXED BY run_due_principal
        WHERE n.status = 'queued' AND n.wake_at <= :now AND n.principal > w.principal
        ORDER BY n.principal, n.wake_at, n.key LIMIT 1
    )
    LIMIT :limit
)
SELECT key, principal FROM w

-- name: due_runs_among
-- Of these runs and conversations, and all that runs below them.
SELECT r.key
FROM (
    SELECT mine.key FROM json_each(:runs) CROSS JOIN run AS mine ON mine.id = value
    UNION
    SELECT child.key FROM json_each(:runs)
    CROSS JOIN run AS mine ON mine.id = value
    CROSS JOIN run AS child INDEXED BY run_child ON child.root = mine.key
    UNION
    SELECT mine.key FROM json_each(:conversations)
    CROSS JOIN conversation AS c ON c.id = value
    CROSS JOIN run AS mine INDEXED BY run_open
        ON mine.conversation = c.key AND mine.status IN ('queued', 'running', 'waiting')
) AS j
CROSS JOIN run AS r ON r.key = j.key
WHERE (r.status = 'running' AND r.worker IN (SELECT value FROM json_each(:dead)))
    OR (r.status IN ('queued', 'waiting') AND r.wake_at <= :now)
    OR (r.status = 'queued' AND r.wake_at > :now + 60000)
    OR (r.status = 'waiting' AND r.waits = '["model"]' AND r.wake_at > :now + 3600000)
ORDER BY r.key LIMIT :limit

-- name: runs_of_claim
-- In the order in which they were claimed, which is that of the events that told of it.
SELECT r.key FROM run AS r WHERE r.worker = :worker AND r.status = 'running' AND r.claim = :number
ORDER BY (
    SELECT max(e.key) FROM event AS e
    WHERE e.conversation = r.conversation AND e.run = r.key AND e.type IN (2, 3)
)

-- name: claim_runs
UPDATE run
SET status = 'running',
    worker = :worker,
    fence = fence + 1,
    claim = :number,
    changes = 0,
    attempt = attempt + (attempt = 0 OR status = 'running'),
    crashes = crashes + (status = 'running'),
    wake_at = NULL,
    waits = NULL,
    child_ended = NULL,
    updated_at = :now
WHERE key IN (SELECT value FROM json_each(:rows))

-- name: leased_runs
SELECT r.key, r.id, r.conversation, r.worker, r.fence, coalesce(r.agent, c.agent), c.id, r.principal, r.facts, r.attempt, r.crashes,
    r.changes, r.model_failures, r.requests, r.input_tokens, r.output_tokens, r.cached_tokens, r.written_tokens, r.cost,
    r.instructions, r.created_at, r.trace, r.first_seq, r.root, c.last_seq
FROM json_each(:rows) AS j
CROSS JOIN run AS r ON r.key = j.value
CROSS JOIN conversation AS c ON c.key = r.conversation

-- name: ancestors_of_runs
-- The runs above some, the root first, each with its call that the next one below was started by.
WITH RECURSIVE w (run, key, turn, n, height) AS (
    SELECT r.key, r.parent, r.parent_turn, r.parent_n, 1
    FROM json_each(:rows) AS j CROSS JOIN run AS r ON r.key = j.value WHERE r.parent IS NOT NULL
    UNION ALL
    SELECT w.run, r.parent, r.parent_turn, r.parent_n, w.height + 1
    FROM w CROSS JOIN run AS r ON r.key = w.key WHERE r.parent IS NOT NULL
)
SELECT w.run, r.key, r.id, coalesce(r.agent, c.agent), w.turn, w.n, r.created_at
FROM w CROSS JOIN run AS r ON r.key = w.key CROSS JOIN conversation AS c ON c.key = r.conversation
ORDER BY w.run, w.height DESC

-- name: leased_run
SELECT key FROM run WHERE key = :run AND status = 'running' AND worker = :worker AND fence = :fence

-- name: release_run
UPDATE run SET status = 'queued', wake_at = :wake_at, updated_at = :now
WHERE key = :run AND status = 'running' AND worker = :worker AND fence = :fence
RETURNING key

-- name: release_crashed_run
UPDATE run
SET status = 'queued', wake_at = :wake_at, crashes = crashes + 1, attempt = attempt + 1, updated_at = :now
WHERE key = :run AND status = 'running' AND worker = :worker AND fence = :fence
RETURNING key

-- name: let_go_cancelled_run
UPDATE run SET worker = NULL
WHERE key = :run AND status = 'cancelled' AND worker = :worker AND fence = :fence + 1
RETURNING conversation

-- name: hold_conversation
UPDATE conversation SET held_until = :until WHERE key = :conversation

-- name: wake_next_runs
WITH j (conversation, wake_at) AS (VALUES :rows)
UPDATE run SET wake_at = j.wake_at
FROM j
WHERE run.key = (
        SELECT min(head.key) FROM run AS head
        WHERE head.conversation = j.conversation AND head.status IN ('queued', 'running', 'waiting')
    )
    AND run.status = 'queued'
    AND (run.wake_at IS NULL OR run.wake_at > j.wake_at)

-- ---------------------------------------------------------------- admitting

-- name: count_in_flight
SELECT count(*) FROM (
    SELECT 1 FROM run INDEXED BY run_in_flight WHERE status IN ('queued', 'running') LIMIT :limit
)

-- name: in_flight_in_conversation
SELECT 1 FROM run INDEXED BY run_open
WHERE conversation = :conversation AND status IN ('queued', 'running', 'waiting') AND status <> 'waiting' LIMIT 1

-- name: standings
-- What counts for principals now: how many of their runs are in flight, up to a limit, and what the rows say of this
-- minute and this day.
SELECT j.value,
    (SELECT count(*) FROM (
        SELECT 1 FROM run INDEXED BY run_in_flight
        WHERE run.principal = j.value AND run.status IN ('queued', 'running') LIMIT :limit
    )),
    CASE WHEN u.minute = :minute THEN u.requests ELSE 0 END,
    CASE WHEN u.day = :day THEN u.runs ELSE 0 END,
    CASE WHEN u.day = :day THEN u.tokens ELSE 0 END,
    CASE WHEN u.day = :day THEN u.cost ELSE 0 END
FROM json_each(:rows) AS j LEFT JOIN principal_usage AS u ON u.principal = j.value

-- name: usage_of_runs
SELECT r.principal, r.input_tokens + r.output_tokens, r.cost
FROM json_each(:rows) AS j CROSS JOIN run AS r ON r.key = j.value

-- name: add_used
WITH j (principal, minute, day, requests, runs, tokens, cost) AS (VALUES :rows)
INSERT INTO principal_usage (principal, minute, day, requests, runs, tokens, cost)
SELECT * FROM j WHERE true
ON CONFLICT (principal) DO UPDATE
SET requests = excluded.requests + CASE WHEN principal_usage.minute = excluded.minute THEN principal_usage.requests
        ELSE 0 END,
    runs = excluded.runs + CASE WHEN principal_usage.day = excluded.day THEN principal_usage.runs ELSE 0 END,
    tokens = excluded.tokens + CASE WHEN principal_usage.day = excluded.day THEN principal_usage.tokens ELSE 0 END,
    cost = excluded.cost + CASE WHEN principal_usage.day = excluded.day THEN principal_usage.cost ELSE 0 END,
    minute = excluded.minute,
    day = excluded.day

-- name: forget_usage
DELETE FROM principal_usage WHERE principal = :principal

-- name: old_usage
SELECT 1 FROM principal_usage WHERE day < :day LIMIT 1

-- name: sweep_usage
DELETE FROM principal_usage WHERE key IN (
    SELECT key FROM principal_usage INDEXED BY principal_usage_day WHERE day < :day LIMIT :limit
)

-- ---------------------------------------------------------------- submitting

-- name: known_submissions
-- Those of which the run or the conversation is there, whether it is the run, and the conversation with whether a run of
-- it is open.
SELECT j.key, r.key IS NOT NULL, c.key, c.principal, c.agent, c.last_seq, c.held_until, EXISTS (
    SELECT 1 FROM run AS o INDEXED BY run_open
    WHERE o.conversation = c.key AND o.status IN ('queued', 'running', 'waiting')
)
FROM json_each(:rows) AS j
LEFT JOIN run AS r ON r.id = j.value ->> 0
LEFT JOIN conversation AS c ON c.id = j.value ->> 1
WHERE r.key IS NOT NULL OR c.key IS NOT NULL

-- name: run_of_submission
SELECT key, worker, status FROM run WHERE id = :id

-- name: idempotency_key
SELECT digest, run_id, created_at FROM idempotency_key
WHERE principal = :principal AND agent = :agent AND name = :name

-- name: oldest_idempotency_keys
SELECT key, created_at FROM idempotency_key ORDER BY key LIMIT :limit

-- name: delete_idempotency_keys
DELETE FROM idempotency_key WHERE key IN (SELECT value FROM json_each(:rows))

-- name: insert_idempotency_key
REPLACE INTO idempotency_key (principal, agent, name, digest, run_id, created_at)
VALUES (:principal, :agent, :name, :digest, :run_id, :now)

-- name: conversation_to_extend
SELECT key, principal, agent, last_seq, held_until FROM conversation WHERE id = :id

-- name: insert_conversations
INSERT INTO conversation (id, principal, agent, title, last_seq, created_at, updated_at) VALUES :rows

-- name: open_runs
-- Those that no other run asked for, and whether they, or what runs below them, wait for somebody else: for a decision
-- that is not the owner's, or for a signal.
SELECT run.key,
    EXISTS (
        SELECT 1 FROM approval AS a JOIN tool_call AS t ON t.run = a.run AND t.turn = a.turn AND t.n = a.n
        WHERE a.run = run.key AND a.decision IS NULL AND a.approver <> 'owner' AND t.status = 'open'
    ) OR EXISTS (
        SELECT 1 FROM tool_call AS t INDEXED BY tool_call_waits
        CROSS JOIN wait AS w ON w.run = t.run AND w.turn = t.turn AND w.n = t.n AND w.k = t.waits
        WHERE t.run = run.key AND t.waits IS NOT NULL AND t.status = 'started'
            AND w.kind = 'signal' AND w.value IS NULL AND (w.until IS NULL OR w.until > :now)
    ) OR EXISTS (
        SELECT 1 FROM run AS child INDEXED BY run_child
        CROSS JOIN approval AS a ON a.run = child.key
        CROSS JOIN tool_call AS t ON t.run = a.run AND t.turn = a.turn AND t.n = a.n
        WHERE child.root = run.key AND child.status IN ('queued', 'running', 'waiting')
            AND a.decision IS NULL AND a.approver <> 'owner' AND t.status = 'open'
    ) OR EXISTS (
        SELECT 1 FROM run AS child INDEXED BY run_child
        CROSS JOIN tool_call AS t INDEXED BY tool_call_waits ON t.run = child.key AND t.waits IS NOT NULL
        CROSS JOIN wait AS w ON w.run = t.run AND w.turn = t.turn AND w.n = t.n AND w.k = t.waits
        WHERE child.root = run.key AND child.status IN ('queued', 'running', 'waiting') AND t.status = 'started'
            AND w.kind = 'signal' AND w.value IS NULL AND (w.until IS NULL OR w.until > :now)
    )
FROM run
WHERE conversation = :conversation AND status IN ('queued', 'running', 'waiting') AND root IS NULL ORDER BY key

-- name: insert_runs
INSERT INTO run (id, conversation, principal, facts, status, wake_at, worker, fence, attempt, first_seq,
    created_at, updated_at, trace)
VALUES :rows

-- name: known_runs
SELECT r.id FROM json_each(:rows) AS j CROSS JOIN run AS r ON r.id = j.value

-- name: insert_child_runs
INSERT INTO run (id, conversation, principal, facts, status, wake_at, first_seq, created_at, updated_at, agent, root,
    parent, parent_turn, parent_n, trace)
SELECT j.value ->> 0, p.conversation, p.principal, p.facts, 'queued', :now, j.value ->> 1, :now, :now, j.value ->> 2,
    coalesce(p.root, p.key), p.key, j.value ->> 4, j.value ->> 5, p.trace
FROM json_each(:rows) AS j CROSS JOIN run AS p ON p.key = j.value ->> 3
ORDER BY j.key
RETURNING key, id, (SELECT c.id FROM conversation AS c WHERE c.key = run.conversation)

-- ---------------------------------------------------------------- a worker's changes

-- name: runs_to_change
SELECT r.key, r.status, r.worker, r.fence, r.changes, c.last_seq,
    EXISTS (SELECT 1 FROM event AS e INDEXED BY event_delta WHERE e.run = r.key AND e.type = 4),
    r.root, t.id, r.parent, p.id, r.parent_turn, r.parent_n
FROM json_each(:rows) AS j
CROSS JOIN run AS r ON r.key = j.value
CROSS JOIN conversation AS c ON c.key = r.conversation
LEFT JOIN run AS t ON t.key = r.root
LEFT JOIN run AS p ON p.key = r.parent

-- name: calls_decided_by_people
SELECT a.run, a.turn, a.n
FROM json_each(:rows) AS j
CROSS JOIN approval AS a ON a.run = j.value ->> 0 AND a.turn = j.value ->> 1 AND a.n = j.value ->> 2
WHERE a.decision <> 'expire'

-- name: insert_messages
INSERT INTO message (run, turn, id, text, status, files, created_at, kept) VALUES :rows

-- name: insert_calls
INSERT INTO tool_call (run, turn, n, tool, arguments, effect, status, tries, failures, result) VALUES :rows

-- name: insert_approvals
WITH j (run, turn, n, approver, created_at, expires_at, decision, decided_by, reason, arguments) AS (VALUES :rows)
INSERT INTO approval (run, turn, n, approver, created_at, expires_at, decision, decided_by, reason, arguments, whose)
SELECT j.run, j.turn, j.n, j.approver, j.created_at, j.expires_at, j.decision, j.decided_by, j.reason, j.arguments,
    CASE WHEN j.decision IS NOT NULL THEN NULL
        WHEN j.approver = 'owner' THEN r.principal
        ELSE substr(r.principal, instr(r.principal || char(31), char(31)))
    END
FROM j CROSS JOIN run AS r ON r.key = j.run

-- name: start_calls
WITH j (run, turn, n, failed) AS (VALUES :rows)
UPDATE tool_call
SET status = 'started', tries = tool_call.tries + 1, failures = tool_call.failures + j.failed
FROM j
WHERE tool_call.run = j.run AND tool_call.turn = j.turn AND tool_call.n = j.n
    AND tool_call.status IN ('open', 'started')

-- name: settle_calls
WITH j (run, turn, n, status, result) AS (VALUES :rows)
UPDATE tool_call SET status = j.status, result = j.result
FROM j
WHERE tool_call.run = j.run AND tool_call.turn = j.turn AND tool_call.n = j.n
    AND tool_call.status IN ('open', 'started')

-- name: expire_approvals
WITH j (run, turn, n, decided_at) AS (VALUES :rows)
UPDATE approval SET decision = 'expire', decided_at = j.decided_at, whose = NULL
FROM j
WHERE approval.run = j.run AND approval.turn = j.turn AND approval.n = j.n AND approval.decision IS NULL

-- name: forget_failed_steps
WITH j (run, turn, n) AS (VALUES :rows)
DELETE FROM step WHERE rowid IN (
    SELECT s.rowid FROM j CROSS JOIN step AS s ON s.run = j.run AND s.turn = j.turn AND s.n = j.n WHERE s.failed
)

-- name: insert_waits
INSERT INTO wait (run, turn, n, k, kind, name, schema, created_at, until) VALUES :rows
ON CONFLICT (run, turn, n, k) DO NOTHING

-- name: count_waits
WITH j (run, turn, n, k) AS (VALUES :rows)
UPDATE tool_call SET waits = max(coalesce(tool_call.waits, 0), j.k)
FROM j
WHERE tool_call.run = j.run AND tool_call.turn = j.turn AND tool_call.n = j.n

-- name: oldest_kept_signal
SELECT key, payload, given_by FROM kept_signal INDEXED BY kept_signal_open
WHERE run = :run AND name = :name AND payload IS NOT NULL
ORDER BY key LIMIT 1

-- name: take_signal
UPDATE kept_signal SET payload = NULL WHERE key = :key

-- name: insert_summaries
WITH j (conversation, summed_up, turn, text, now) AS (VALUES :rows)
INSERT INTO summary (conversation, thread, run, turn, text, created_at)
SELECT j.conversation, CASE WHEN r.root IS NULL THEN 0 ELSE r.key END, r.key, j.turn, j.text, j.now
FROM j CROSS JOIN run AS r ON r.id = j.summed_up AND r.conversation = j.conversation

-- name: insert_steps
INSERT INTO step (run, turn, n, name, value, failed) VALUES :rows
ON CONFLICT (run, turn, n, name) DO NOTHING

-- name: drop_deltas
DELETE FROM event WHERE key IN (
    SELECT e.key FROM json_each(:rows) AS j CROSS JOIN event AS e INDEXED BY event_delta ON e.run = j.value AND e.type = 4
)

-- name: update_runs
WITH j (run, changes, progress, model_failures, requests, input_tokens, output_tokens, cached_tokens, written_tokens,
    cost, now) AS (VALUES :rows)
UPDATE run
SET changes = j.changes,
    crashes = CASE WHEN j.progress THEN 0 ELSE run.crashes END,
    model_failures = coalesce(j.model_failures, run.model_failures),
    requests = coalesce(j.requests, run.requests),
    input_tokens = coalesce(j.input_tokens, run.input_tokens),
    output_tokens = coalesce(j.output_tokens, run.output_tokens),
    cached_tokens = coalesce(j.cached_tokens, run.cached_tokens),
    written_tokens = coalesce(j.written_tokens, run.written_tokens),
    cost = coalesce(j.cost, run.cost),
    updated_at = j.now
FROM j
WHERE run.key = j.run

-- name: keep_instructions
WITH j (run, instructions) AS (VALUES :rows)
UPDATE run SET instructions = j.instructions FROM j WHERE run.key = j.run

-- name: end_runs
WITH j (run, changes, progress, model_failures, requests, input_tokens, output_tokens, cached_tokens, written_tokens,
    cost, now, status, ended_seq, error, result) AS (VALUES :rows)
UPDATE run
SET changes = j.changes,
    crashes = CASE WHEN j.progress THEN 0 ELSE run.crashes END,
    model_failures = coalesce(j.model_failures, run.model_failures),
    requests = coalesce(j.requests, run.requests),
    input_tokens = coalesce(j.input_tokens, run.input_tokens),
    output_tokens = coalesce(j.output_tokens, run.output_tokens),
    cached_tokens = coalesce(j.cached_tokens, run.cached_tokens),
    written_tokens = coalesce(j.written_tokens, run.written_tokens),
    cost = coalesce(j.cost, run.cost),
    updated_at = j.now,
    status = j.status,
    ended_seq = j.ended_seq,
    error = j.error,
    result = j.result
FROM j
WHERE run.key = j.run

-- name: insert_events
INSERT INTO event (conversation, seq, run, type, turn, n, data, hidden, source) VALUES :rows

-- name: update_conversations
WITH j (conversation, last_seq, now) AS (VALUES :rows)
UPDATE conversation SET last_seq = j.last_seq, updated_at = j.now
FROM j
WHERE conversation.key = j.conversation

-- name: decided_open_calls
SELECT t.n FROM tool_call AS t JOIN approval AS a ON a.run = t.run AND a.turn = t.turn AND a.n = t.n
WHERE t.run = :run AND t.status = 'open' AND a.decision IS NOT NULL

-- name: waits_over_by_value
SELECT t.n FROM tool_call AS t INDEXED BY tool_call_waits
CROSS JOIN wait AS w ON w.run = t.run AND w.turn = t.turn AND w.n = t.n AND w.k = t.waits
WHERE t.run = :run AND t.waits IS NOT NULL AND t.status = 'started' AND w.value IS NOT NULL
LIMIT 1

-- name: child_that_ended
SELECT key FROM run WHERE key = :run AND child_ended IS NOT NULL

-- name: calls_of_ended_children
-- Calls that wait for a run that has ended and has not told them.
SELECT t.turn, t.n FROM tool_call AS t INDEXED BY tool_call_waits
CROSS JOIN wait AS w ON w.run = t.run AND w.turn = t.turn AND w.n = t.n AND w.k = t.waits
CROSS JOIN run AS child ON child.id = w.name
WHERE t.run = :run AND t.waits IS NOT NULL AND t.status = 'started' AND w.kind = 'child'
    AND child.status NOT IN ('queued', 'running', 'waiting')

-- name: child_runs
SELECT r.key FROM json_each(:rows) AS j CROSS JOIN run AS r ON r.key = j.value WHERE r.root IS NOT NULL

-- name: wake_parents
WITH j (run, now) AS (VALUES :rows)
UPDATE run SET status = 'queued', wake_at = j.now, waits = NULL, crashes = 0, updated_at = j.now
FROM j WHERE run.key = j.run AND run.status = 'waiting'

-- name: tell_parents
WITH j (run) AS (VALUES :rows)
UPDATE run SET child_ended = 1, crashes = 0 FROM j WHERE run.key = j.run AND run.status = 'running'

-- name: heard_of_children
UPDATE run SET child_ended = NULL WHERE key = :run

-- name: pause_run
UPDATE run SET status = 'waiting', wake_at = :until, waits = :kinds WHERE key = :run

-- ---------------------------------------------------------------- ending a run from outside

-- name: run_to_cancel
SELECT r.id, r.conversation, r.status, r.ended_seq, r.worker, c.last_seq, c.held_until,
    r.root, t.id, r.parent, p.id, r.parent_turn, r.parent_n
FROM run AS r
JOIN conversation AS c ON c.key = r.conversation
LEFT JOIN run AS t ON t.key = r.root
LEFT JOIN run AS p ON p.key = r.parent
WHERE r.key = :run

-- name: open_runs_below
SELECT key, parent FROM run INDEXED BY run_child
WHERE root = :root AND status IN ('queued', 'running', 'waiting') ORDER BY key

-- name: tree_that_goes_on
-- Of the tree of a cancelled run, what keeps the conversation's next run waiting: its root while that is open, and runs
-- that a worker may still be busy with.
SELECT o.key FROM run AS r
CROSS JOIN run AS o ON o.key = coalesce(r.root, r.key)
WHERE r.key = :run AND o.key <> r.key
    AND (o.status IN ('queued', 'running', 'waiting') OR (o.status = 'cancelled' AND o.worker IS NOT NULL))
UNION ALL
SELECT o.key FROM run AS r
CROSS JOIN run AS o INDEXED BY run_child ON o.root = coalesce(r.root, r.key)
WHERE r.key = :run AND o.key <> r.key AND o.status = 'cancelled' AND o.worker IS NOT NULL

-- name: deltas
SELECT data FROM event INDEXED BY event_delta WHERE run = :run AND type = 4 ORDER BY seq

-- name: cancel_run
UPDATE run
SET status = 'cancelled', fence = fence + 1, ended_seq = :ended_seq, wake_at = NULL, waits = NULL, updated_at = :now,
    worker = CASE WHEN status = 'running' THEN worker END
WHERE key = :run

-- name: close_approvals
WITH j (run) AS (VALUES :rows)
UPDATE approval SET whose = NULL FROM j WHERE approval.run = j.run AND approval.whose IS NOT NULL

-- ---------------------------------------------------------------- deciding

-- name: call_view
SELECT r.key, r.conversation, r.status, r.ended_seq, c.agent, c.id, r.principal, r.facts, r.root, t.id, c.last_seq
FROM run AS r JOIN conversation AS c ON c.key = r.conversation LEFT JOIN run AS t ON t.key = r.root
WHERE r.id = :run_id

-- name: decide_approval
UPDATE approval
SET decision = :decision, decided_at = :now, decided_by = :by, reason = :reason, arguments = :arguments, whose = NULL
WHERE run = :run AND turn = :turn AND n = :n

-- name: wake_run
UPDATE run SET status = 'queued', wake_at = :now, waits = NULL, updated_at = :now
WHERE key = :run AND status = 'waiting'

-- ---------------------------------------------------------------- answering and signalling

-- name: give_to_wait
UPDATE wait SET value = :value, given_by = :by
WHERE run = :run AND turn = :turn AND n = :n AND k = :k AND value IS NULL
RETURNING k

-- name: run_to_signal
SELECT r.key, r.conversation, r.status, r.ended_seq, r.principal, r.root,
    (SELECT s.digest FROM kept_signal AS s WHERE s.id = :signal),
    (SELECT count(*) FROM (
        SELECT 1 FROM kept_signal AS s INDEXED BY kept_signal_open WHERE s.run = r.key AND s.payload IS NOT NULL LIMIT :limit
    ) AS w),
    c.last_seq
FROM run AS r JOIN conversation AS c ON c.key = r.conversation
WHERE r.id = :id AND (:agent IS NULL OR c.agent = :agent)

-- name: oldest_wait_for_signal
SELECT t.turn, t.n, w.k FROM tool_call AS t INDEXED BY tool_call_waits
CROSS JOIN wait AS w ON w.run = t.run AND w.turn = t.turn AND w.n = t.n AND w.k = t.waits
WHERE t.run = :run AND t.waits IS NOT NULL AND t.status = 'started' AND w.kind = 'signal' AND w.name = :name
    AND w.value IS NULL AND (w.until IS NULL OR w.until > :now)
ORDER BY w.created_at, t.turn, t.n LIMIT 1

-- name: insert_signal
INSERT INTO kept_signal (run, id, name, payload, digest, given_by, created_at) VALUES (:run, :id, :name, :payload, :digest, :by, :now)

-- ---------------------------------------------------------------- erasing

-- name: conversation_to_erase
SELECT key FROM conversation
WHERE id = :id AND principal = :principal AND (:agent IS NULL OR agent = :agent)

-- name: erase_steps
DELETE FROM step WHERE run IN (SELECT key FROM run WHERE conversation = :conversation)

-- name: erase_waits
DELETE FROM wait WHERE run IN (SELECT key FROM run WHERE conversation = :conversation)

-- name: erase_signals
DELETE FROM kept_signal WHERE run IN (SELECT key FROM run WHERE conversation = :conversation)

-- name: erase_webhooks
DELETE FROM webhook WHERE run IN (SELECT key FROM run WHERE conversation = :conversation)

-- name: erase_records
DELETE FROM record INDEXED BY record_of WHERE family IS NOT NULL AND family IN (
    SELECT id FROM run WHERE conversation = :conversation
    UNION ALL
    SELECT id FROM conversation WHERE key = :conversation
)

-- name: erase_summaries
DELETE FROM summary WHERE conversation = :conversation

-- name: erase_approvals
DELETE FROM approval WHERE run IN (SELECT key FROM run WHERE conversation = :conversation)

-- name: erase_calls
DELETE FROM tool_call WHERE run IN (SELECT key FROM run WHERE conversation = :conversation)

-- name: erase_messages
DELETE FROM message WHERE run IN (SELECT key FROM run WHERE conversation = :conversation)

-- name: keep_erased_runs
INSERT INTO erased_run (run, id, event, erased_at)
SELECT r.key, r.id, e.key, :now
FROM run AS r JOIN event AS e ON e.conversation = r.conversation AND e.seq = r.ended_seq
WHERE r.conversation = :conversation AND r.updated_at > :since

-- name: erase_events
DELETE FROM event
WHERE conversation = :conversation
    AND NOT EXISTS (SELECT 1 FROM erased_run AS x WHERE x.run = event.run AND x.event = event.key)

-- name: erase_data_of_events
UPDATE event SET data = NULL WHERE conversation = :conversation AND data IS NOT NULL

-- name: forget_erased_events
DELETE FROM event WHERE key IN (SELECT event FROM erased_run WHERE erased_at <= :before)

-- name: forget_erased_runs
DELETE FROM erased_run WHERE erased_at <= :before

-- name: erase_runs
DELETE FROM run WHERE conversation = :conversation

-- name: erase_conversation
DELETE FROM conversation WHERE key = :conversation

-- ---------------------------------------------------------------- what is old

-- name: conversations_after
-- Of the next ones those that nothing was added to since a time and that have no open run, and when each began.
SELECT c.key, c.created_at, c.updated_at <= :before AND NOT EXISTS (
    SELECT 1 FROM run AS r INDEXED BY run_open
    WHERE r.conversation = c.key AND r.status IN ('queued', 'running', 'waiting')
)
FROM conversation AS c WHERE c.key > :key ORDER BY c.key LIMIT :limit

-- name: conversations_to_purge
SELECT c.key, (SELECT count(*) FROM run AS r WHERE r.conversation = c.key AND r.root IS NULL)
FROM json_each(:rows) AS j CROSS JOIN conversation AS c ON c.key = j.value
WHERE c.updated_at <= :before AND NOT EXISTS (
    SELECT 1 FROM run AS r INDEXED BY run_open
    WHERE r.conversation = c.key AND r.status IN ('queued', 'running', 'waiting')
)

-- name: times_of_oldest_keys
SELECT created_at FROM idempotency_key WHERE key >= 0 ORDER BY key LIMIT :limit

-- ---------------------------------------------------------------- all of a principal's

-- name: keys_of_principal
SELECT key FROM idempotency_key WHERE principal = :principal LIMIT :limit

-- name: files_of_principal
SELECT key, id, name, media_type, size, created_at, digest, blob FROM file INDEXED BY file_principal
WHERE principal = :principal AND key > :after ORDER BY key LIMIT :limit

-- name: files_to_forget
SELECT key, blob FROM file INDEXED BY file_principal WHERE principal = :principal ORDER BY key LIMIT :limit

-- name: forget_records_of
DELETE FROM record WHERE place IN (
    SELECT place FROM record INDEXED BY record_of WHERE family = :family LIMIT :limit
)
RETURNING taken_by

-- name: decisions_of
-- An id of another tenant is somebody else.
SELECT a.run, a.turn, a.n, r.id, a.decision, a.decided_at, a.reason
FROM approval AS a INDEXED BY approval_decided_by CROSS JOIN run AS r ON r.key = a.run
WHERE a.decided_by = :by AND (a.run, a.turn, a.n) > (:run, :turn, :n)
    AND substr(r.principal, instr(r.principal || char(31), char(31))) = :tenant
ORDER BY a.run, a.turn, a.n LIMIT :limit

-- name: forget_deciders
WITH j (run, turn, n, decided_by) AS (VALUES :rows)
UPDATE approval SET decided_by = NULL FROM j
WHERE approval.run = j.run AND approval.turn = j.turn AND approval.n = j.n AND approval.decided_by = j.decided_by

-- name: all_runs_of_conversation
SELECT r.key FROM conversation AS c CROSS JOIN run AS r ON r.conversation = c.key
WHERE c.id = :id AND c.principal = :principal AND r.key > :after ORDER BY r.key LIMIT :limit

-- name: summaries_of_runs
-- Of runs of one conversation; the first of them is given.
SELECT s.run, s.text, s.created_at FROM run AS r CROSS JOIN summary AS s ON s.conversation = r.conversation
WHERE r.key = :run AND s.run IN (SELECT value FROM json_each(:rows)) ORDER BY s.key

-- name: next_owner
SELECT min(principal) FROM conversation WHERE principal > :after AND principal < :until

-- ---------------------------------------------------------------- files

-- name: insert_files
INSERT INTO file (id, principal, name, media_type, size, created_at, digest, blob, run) VALUES :rows

-- name: insert_file_uses
INSERT OR IGNORE INTO file_use (file, conversation) VALUES :rows

-- name: file_of_owner
SELECT key, id, name, media_type, size, created_at, digest, blob FROM file WHERE id = :id AND principal = :principal

-- name: file_seen
SELECT f.key, f.id, f.name, f.media_type, f.size, f.created_at, f.digest, f.blob FROM file AS f WHERE f.id = :id AND
    (f.principal = :principal OR (substr(f.principal, instr(f.principal || char(31), char(31))) = :tenant AND EXISTS (
        SELECT 1 FROM file_use AS u CROSS JOIN conversation AS c ON c.key = u.conversation
        WHERE u.file = f.key AND c.agent IN (SELECT value FROM json_each(:readable)))))

-- name: files_of_owner
SELECT f.key, f.id, f.name, f.media_type, f.size, f.created_at, f.digest, f.blob
FROM json_each(:rows) AS j
CROSS JOIN file AS f ON f.id = j.value AND f.principal = :principal

-- name: files_to_use
SELECT f.key, f.id FROM json_each(:rows) AS j CROSS JOIN file AS f ON f.id = j.value AND f.principal = :principal

-- name: files_of_run
SELECT id FROM file WHERE run = :run ORDER BY key

-- name: files_used_only_in
SELECT f.key, f.blob
FROM file_use AS u
CROSS JOIN file AS f ON f.key = u.file
WHERE u.conversation = :conversation
    AND NOT EXISTS (SELECT 1 FROM file_use AS o WHERE o.file = u.file AND o.conversation <> :conversation)

-- name: erase_file_uses
DELETE FROM file_use WHERE conversation = :conversation

-- name: delete_file_uses
DELETE FROM file_use WHERE file IN (SELECT value FROM json_each(:rows))

-- name: delete_files
DELETE FROM file WHERE key IN (SELECT value FROM json_each(:rows))

-- name: files_after
SELECT f.key, f.created_at, EXISTS (SELECT 1 FROM file_use AS u WHERE u.file = f.key)
FROM file AS f WHERE f.key > :key ORDER BY f.key LIMIT :limit

-- name: files_unused
SELECT f.key, f.blob FROM json_each(:rows) AS j CROSS JOIN file AS f ON f.key = j.value
WHERE f.created_at <= :before AND NOT EXISTS (SELECT 1 FROM file_use AS u WHERE u.file = f.key)

-- name: blobs_with_owner
SELECT j.value FROM json_each(:rows) AS j
WHERE EXISTS (SELECT 1 FROM file AS f WHERE f.blob = j.value)

-- ---------------------------------------------------------------- handlers of events

-- name: insert_handlers
INSERT INTO handler (name, position)
SELECT value, :position FROM json_each(:rows) WHERE true
ON CONFLICT (name) DO NOTHING

-- name: handlers_to_claim
SELECT h.key, h.name, h.worker, h.fence FROM json_each(:rows) AS j CROSS JOIN handler AS h ON h.name = j.value
ORDER BY h.key

-- name: claim_handlers
UPDATE handler SET worker = :worker, fence = fence + 1 WHERE key IN (SELECT value FROM json_each(:rows))

-- name: leased_handler
SELECT position FROM handler WHERE key = :handler AND worker = :worker AND fence = :fence

-- name: handler_to_move
SELECT position FROM handler WHERE key = :handler AND worker = :worker AND fence = :fence

-- name: last_of_next_events
SELECT max(key), count(*) FROM (SELECT key FROM event WHERE key > :after ORDER BY key LIMIT :limit)

-- name: arrivals
SELECT key, conversation, seq FROM event
WHERE key > :after AND key <= :read_to AND type IN (SELECT value FROM json_each(:types)) AND hidden IS NULL
ORDER BY key

-- name: delivery
SELECT e.key, e.conversation, e.seq, e.run, r.id, e.type, e.turn, e.n, e.data, c.agent, c.id, e.hidden, e.source,
    r.principal, r.facts
FROM event AS e
CROSS JOIN run AS r ON r.key = e.run
CROSS JOIN conversation AS c ON c.key = r.conversation
WHERE e.conversation = :conversation AND e.seq >= :seq AND +e.key <= :until
    AND +e.type IN (SELECT value FROM json_each(:types)) AND e.hidden IS NULL
ORDER BY e.seq LIMIT 1

-- name: behind
SELECT conversation, seq, tries, again_at FROM behind WHERE handler = :handler

-- name: fall_behind
INSERT INTO behind (handler, conversation, seq, tries, again_at) VALUES :rows
ON CONFLICT (handler, conversation) DO UPDATE
SET seq = excluded.seq, tries = excluded.tries, again_at = excluded.again_at
WHERE excluded.seq >= behind.seq

-- name: catch_up
DELETE FROM behind WHERE handler = :handler AND conversation = :conversation AND seq <= :seq

-- name: move_handler
UPDATE handler SET position = :position WHERE key = :handler AND position < :position

-- ---------------------------------------------------------------- rows of runs

-- name: messages_of_runs
SELECT m.run, r.id, m.turn, m.id, m.text, m.status, m.files, m.created_at, m.kept
FROM json_each(:rows) AS j
CROSS JOIN message AS m ON m.run = j.value
CROSS JOIN run AS r ON r.key = m.run
ORDER BY m.run, m.turn

-- name: messages_of_turns
SELECT m.run, r.id, m.turn, m.id, m.text, m.status, m.files, m.created_at, m.kept
FROM json_each(:rows) AS j
CROSS JOIN message AS m ON m.run = j.value ->> 0 AND m.turn = j.value ->> 1
CROSS JOIN run AS r ON r.key = m.run
ORDER BY m.run, m.turn

-- name: calls_of_turns
SELECT t.run, r.id, t.turn, t.n, t.tool, t.arguments, t.effect, t.status, t.tries, t.failures, t.result,
    a.approver, a.created_at, a.expires_at, a.decision, a.decided_by, a.reason, a.arguments,
    w.k, w.kind, w.name, w.schema, w.created_at, w.until, w.value, w.given_by
FROM json_each(:rows) AS j
CROSS JOIN tool_call AS t ON t.run = j.value ->> 0 AND t.turn = j.value ->> 1
CROSS JOIN run AS r ON r.key = t.run
LEFT JOIN approval AS a ON a.run = t.run AND a.turn = t.turn AND a.n = t.n
LEFT JOIN wait AS w ON w.run = t.run AND w.turn = t.turn AND w.n = t.n AND w.k = t.waits
ORDER BY t.run, t.turn, t.n

-- name: calls_of_events
SELECT t.run, r.id, t.turn, t.n, t.tool, t.arguments, t.effect, t.status, t.tries, t.failures,
    CASE WHEN :results THEN t.result END,
    a.approver, a.created_at, a.expires_at, a.decision, a.decided_by, a.reason, a.arguments
FROM json_each(:rows) AS j
CROSS JOIN tool_call AS t ON t.run = j.value ->> 0 AND t.turn = j.value ->> 1
    AND t.n BETWEEN j.value ->> 2 AND j.value ->> 3
CROSS JOIN run AS r ON r.key = t.run
LEFT JOIN approval AS a ON a.run = t.run AND a.turn = t.turn AND a.n = t.n
ORDER BY t.run, t.turn, t.n

-- name: waits_of_runs
SELECT w.run, w.turn, w.n, w.k, w.kind, w.name, w.schema, w.created_at, w.until, w.value, w.given_by
FROM json_each(:rows) AS j
CROSS JOIN wait AS w ON w.run = j.value
ORDER BY w.run, w.turn, w.n, w.k

-- name: waits_at
SELECT w.run, w.turn, w.n, w.k, w.kind, w.name, w.schema, w.created_at, w.until, w.value, w.given_by
FROM json_each(:rows) AS j
CROSS JOIN wait AS w
    ON w.run = j.value ->> 0 AND w.turn = j.value ->> 1 AND w.n = j.value ->> 2 AND w.k = j.value ->> 3

-- name: steps_of_runs
SELECT s.run, s.turn, s.n, s.name, s.value, s.failed
FROM json_each(:rows) AS j
CROSS JOIN step AS s ON s.run = j.value
ORDER BY s.rowid

-- name: deltas_of_runs
SELECT e.run, e.data
FROM json_each(:rows) AS j
CROSS JOIN event AS e INDEXED BY event_delta ON e.run = j.value AND e.type = 4
ORDER BY e.seq

-- name: newest_summary
-- Of a run's thread: nothing in it where there is none, no row where there is no such run.
SELECT s.key, s.run, r.id, s.turn, s.text
FROM run AS mine
LEFT JOIN summary AS s ON s.key = (
    SELECT n.key FROM summary AS n
    WHERE n.conversation = mine.conversation AND n.thread = CASE WHEN mine.root IS NULL THEN 0 ELSE mine.key END
    ORDER BY n.key DESC LIMIT 1
)
LEFT JOIN run AS r ON r.key = s.run
WHERE mine.key = :run

-- name: earlier_messages
-- Of the runs before one, after a turn of one of them; a child run is the first of its thread.
SELECT m.run, r.id, m.turn, m.id, m.text, m.status, m.files, m.created_at, m.kept
FROM run AS r CROSS JOIN message AS m ON m.run = r.key
WHERE r.conversation = :conversation AND r.key >= :after_run AND r.key < :run
    AND (r.key > :after_run OR m.turn > :after_turn)
    AND r.root IS NULL AND (SELECT root FROM run WHERE key = :run) IS NULL
ORDER BY m.run, m.turn

-- ---------------------------------------------------------------- reads for the outside

-- name: find_run
SELECT r.key FROM run AS r JOIN conversation AS c ON c.key = r.conversation
WHERE r.id = :id AND r.principal = :principal AND (:agent IS NULL OR coalesce(r.agent, c.agent) = :agent)

-- name: run_view
SELECT r.key, r.id, coalesce(r.agent, c.agent), c.id, r.principal, r.facts, r.status, r.ended_seq, r.waits, r.attempt, r.requests,
    r.input_tokens, r.output_tokens, r.cached_tokens, r.written_tokens, r.cost, r.error, r.result,
    r.created_at, r.updated_at, r.status_at,
    CASE WHEN r.status <> 'completed' THEN NULL
        WHEN c.agent LIKE 'tool:%' THEN
            (SELECT t.result FROM tool_call AS t WHERE t.run = r.key AND t.turn = 1 AND t.n = 0)
        ELSE (SELECT m.text FROM message AS m WHERE m.run = r.key ORDER BY m.turn DESC LIMIT 1)
    END,
    coalesce(r.root, (SELECT r.key FROM run AS child WHERE child.root = r.key LIMIT 1))
FROM run AS r JOIN conversation AS c ON c.key = r.conversation
WHERE r.id = :id AND (:agent IS NULL OR coalesce(r.agent, c.agent) = :agent) AND
    (r.principal = :principal OR (c.agent IN (SELECT value FROM json_each(:readable))
        AND substr(r.principal, instr(r.principal || char(31), char(31))) = :tenant))

-- name: run_views
SELECT r.key, r.id, coalesce(r.agent, c.agent), c.id, r.principal, r.facts, r.status, r.ended_seq, r.waits, r.attempt, r.requests,
    r.input_tokens, r.output_tokens, r.cached_tokens, r.written_tokens, r.cost, r.error, r.result,
    r.created_at, r.updated_at, r.status_at,
    CASE WHEN r.status <> 'completed' THEN NULL
        WHEN c.agent LIKE 'tool:%' THEN
            (SELECT t.result FROM tool_call AS t WHERE t.run = r.key AND t.turn = 1 AND t.n = 0)
        ELSE (SELECT m.text FROM message AS m WHERE m.run = r.key ORDER BY m.turn DESC LIMIT 1)
    END,
    coalesce(r.root, (SELECT r.key FROM run AS child WHERE child.root = r.key LIMIT 1))
FROM json_each(:rows) AS j
CROSS JOIN run AS r ON r.key = j.value
CROSS JOIN conversation AS c ON c.key = r.conversation

-- name: runs_of_trees
-- Whole trees by the keys of their roots.
SELECT r.key, r.parent, r.id, r.agent, r.status IN ('queued', 'running', 'waiting'),
    r.requests, r.input_tokens, r.output_tokens, r.cached_tokens, r.written_tokens, r.cost
FROM (
    SELECT j.value AS key FROM json_each(:rows) AS j
    UNION ALL
    SELECT child.key FROM json_each(:rows) AS j CROSS JOIN run AS child INDEXED BY run_child ON child.root = j.value
) AS j
CROSS JOIN run AS r ON r.key = j.key
ORDER BY r.key

-- name: root_of_run
SELECT coalesce(root, key) FROM run WHERE key = :run

-- name: open_approvals_of_runs
SELECT a.run, a.turn, a.n, t.tool, t.arguments, a.expires_at
FROM json_each(:rows) AS j
CROSS JOIN approval AS a ON a.run = j.value AND a.decision IS NULL
CROSS JOIN tool_call AS t ON t.run = a.run AND t.turn = a.turn AND t.n = a.n AND t.status = 'open'
ORDER BY a.run, a.turn, a.n

-- name: open_waits_of_runs
SELECT t.run, t.turn, t.n, t.tool, t.arguments,
    w.k, w.kind, w.name, w.schema, w.created_at, w.until, w.value, w.given_by
FROM json_each(:rows) AS j
CROSS JOIN tool_call AS t INDEXED BY tool_call_waits ON t.run = j.value AND t.waits IS NOT NULL AND t.status = 'started'
CROSS JOIN wait AS w ON w.run = t.run AND w.turn = t.turn AND w.n = t.n AND w.k = t.waits AND w.value IS NULL
ORDER BY t.run, t.turn, t.n

-- name: list_runs
SELECT r.key FROM run AS r CROSS JOIN conversation AS c ON c.key = r.conversation
WHERE r.principal = :principal AND r.key < :before AND r.root IS NULL AND (:agent IS NULL OR c.agent = :agent)
ORDER BY r.key DESC LIMIT :limit

-- name: list_tasks
SELECT r.key, r.status_at FROM run AS r INDEXED BY run_task
WHERE r.principal = :principal AND r.status_at >= :since AND (r.status_at, r.key) < (:status_at, :before)
    AND (:statuses = '[]' OR r.status IN (SELECT value FROM json_each(:statuses)))
    AND (:asking IS NULL OR r.status <> 'waiting' OR (r.key IN (SELECT value FROM json_each(:asking_ones))) = :asking)
    AND (:begun IS NULL OR r.status <> 'queued' OR (r.attempt > 0) = :begun)
ORDER BY r.status_at DESC, r.key DESC LIMIT :limit

-- name: count_tasks
SELECT count(*) FROM run AS r INDEXED BY run_task
WHERE r.principal = :principal AND r.status_at >= :since
    AND (:statuses = '[]' OR r.status IN (SELECT value FROM json_each(:statuses)))
    AND (:asking IS NULL OR r.status <> 'waiting' OR (r.key IN (SELECT value FROM json_each(:asking_ones))) = :asking)
    AND (:begun IS NULL OR r.status <> 'queued' OR (r.attempt > 0) = :begun)

-- name: tasks_of_conversation
SELECT r.key, r.status_at
FROM conversation AS c CROSS JOIN run AS r INDEXED BY run_conversation ON r.conversation = c.key
WHERE c.id = :conversation AND r.principal = :principal AND r.status_at >= :since
    AND (:statuses = '[]' OR r.status IN (SELECT value FROM json_each(:statuses)))
    AND (:asking IS NULL OR r.status <> 'waiting' OR (r.key IN (SELECT value FROM json_each(:asking_ones))) = :asking)
    AND (:begun IS NULL OR r.status <> 'queued' OR (r.attempt > 0) = :begun)
ORDER BY r.status_at DESC, r.key DESC

-- name: waiting_before
-- Of a run's conversation, what waits before it.
SELECT r.key FROM run AS mine CROSS JOIN run AS r INDEXED BY run_open ON r.conversation = mine.conversation
WHERE mine.key = :run AND r.key < mine.key AND r.root IS NULL
    AND r.status IN ('queued', 'running', 'waiting') AND r.status = 'waiting'
ORDER BY r.key

-- name: tasks_that_ask
-- Of the tasks that wait, those of which a call waits for a decision or an answer, or one of a run below them does.
SELECT r.key FROM run AS r INDEXED BY run_task
WHERE r.principal = :principal AND r.status_at >= :since AND r.status = 'waiting' AND EXISTS (
    SELECT 1 FROM (
        SELECT r.key AS key
        UNION ALL
        SELECT child.key FROM run AS child INDEXED BY run_child
        WHERE child.root = r.key AND child.status IN ('queued', 'running', 'waiting')
    ) AS w
    WHERE EXISTS (
        SELECT 1 FROM approval AS a CROSS JOIN tool_call AS t ON t.run = a.run AND t.turn = a.turn AND t.n = a.n
        WHERE a.run = w.key AND a.decision IS NULL AND t.status = 'open'
    ) OR EXISTS (
        SELECT 1 FROM tool_call AS t INDEXED BY tool_call_waits
        CROSS JOIN wait AS o ON o.run = t.run AND o.turn = t.turn AND o.n = t.n AND o.k = t.waits
        WHERE t.run = w.key AND t.waits IS NOT NULL AND t.status = 'started' AND o.kind = 'question' AND o.value IS NULL
    )
)

-- name: list_approvals
SELECT a.run, a.turn, a.n, coalesce(root.id, r.id), c.agent, c.id, r.principal, r.facts
FROM approval AS a INDEXED BY approval_open
CROSS JOIN tool_call AS t ON t.run = a.run AND t.turn = a.turn AND t.n = a.n AND t.status = 'open'
CROSS JOIN run AS r ON r.key = a.run
CROSS JOIN conversation AS c ON c.key = r.conversation
LEFT JOIN run AS root ON root.key = r.root
WHERE a.approver = :approver AND a.whose = :whose AND (a.run, a.turn, a.n) > (:run, :turn, :n)
    AND (a.expires_at IS NULL OR a.expires_at > :now)
ORDER BY a.run, a.turn, a.n LIMIT :limit

-- name: list_conversations
SELECT key, id, agent, title, created_at, updated_at FROM conversation
WHERE principal = :principal AND key < :before AND (:agent IS NULL OR agent = :agent)
ORDER BY key DESC LIMIT :limit

-- name: find_conversation
SELECT key, id, agent, title, created_at, updated_at, last_seq FROM conversation
WHERE id = :id AND (:agent IS NULL OR agent = :agent) AND
    (principal = :principal OR (agent IN (SELECT value FROM json_each(:readable))
        AND substr(principal, instr(principal || char(31), char(31))) = :tenant))

-- name: first_delta
SELECT min(e.seq) FROM run AS r CROSS JOIN event AS e INDEXED BY event_delta ON e.run = r.key AND e.type = 4
WHERE r.conversation = :conversation AND r.status IN ('queued', 'running', 'waiting') AND r.root IS NULL

-- name: messages_told_later
SELECT run, turn FROM event WHERE conversation = :conversation AND seq > :seq AND type = 5 AND hidden IS NULL

-- name: newest_messages
SELECT m.run, m.turn FROM run AS r CROSS JOIN message AS m ON m.run = r.key
WHERE r.conversation = :conversation AND r.key <= :run AND r.root IS NULL AND (r.key < :run OR m.turn < :turn)
ORDER BY r.key DESC, m.turn DESC LIMIT :limit

-- name: log_of_run
SELECT r.key, r.conversation, r.first_seq, c.last_seq, r.ended_seq, c.id
FROM run AS r JOIN conversation AS c ON c.key = r.conversation
WHERE r.id = :id AND (:agent IS NULL OR coalesce(r.agent, c.agent) = :agent) AND
    (r.principal = :principal OR (c.agent IN (SELECT value FROM json_each(:readable))
        AND substr(r.principal, instr(r.principal || char(31), char(31))) = :tenant))

-- name: log_of_conversation
SELECT c.key, c.last_seq,
    (SELECT r.first_seq FROM run AS r WHERE r.conversation = c.key AND r.root IS NULL ORDER BY r.key DESC LIMIT 1)
FROM conversation AS c
WHERE c.id = :id AND (:agent IS NULL OR c.agent = :agent) AND
    (c.principal = :principal OR (c.agent IN (SELECT value FROM json_each(:readable))
        AND substr(c.principal, instr(c.principal || char(31), char(31))) = :tenant))

-- name: log_after
SELECT e.key, e.conversation, e.seq, e.run, r.id, e.type, e.turn, e.n, e.data, c.agent, c.id, e.hidden, e.source
FROM event AS e JOIN run AS r ON r.key = e.run JOIN conversation AS c ON c.key = e.conversation
WHERE e.conversation = :conversation AND e.seq > :after AND e.hidden IS NULL
ORDER BY e.seq LIMIT :limit

-- name: log_of_run_after
SELECT e.key, e.conversation, e.seq, e.run, r.id, e.type, e.turn, e.n, e.data, coalesce(r.agent, c.agent), c.id,
    e.hidden, e.source
FROM event AS e JOIN run AS r ON r.key = e.run JOIN conversation AS c ON c.key = e.conversation
WHERE e.conversation = :conversation AND e.seq > :after AND e.seq >= r.first_seq
    AND e.seq <= coalesce(r.ended_seq, e.seq) AND e.run = :run
ORDER BY e.seq LIMIT :limit

-- name: events_since
SELECT e.key, e.conversation, e.seq, e.run, coalesce(r.id, x.id), e.type, e.turn, e.n, e.data,
    coalesce(r.agent, c.agent), c.id, e.hidden, e.source
FROM event AS e
LEFT JOIN run AS r ON r.key = e.run
LEFT JOIN conversation AS c ON c.key = e.conversation
LEFT JOIN erased_run AS x ON r.key IS NULL AND x.run = e.run
WHERE e.key > :key
ORDER BY e.key LIMIT :limit

-- name: last_event_key
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'event'), 0)

-- ---------------------------------------------------------------- reads over all principals

-- name: run_owner
SELECT principal, facts FROM run WHERE id = :id

-- name: find_runs
-- Of so many runs before a place, those that fit; the last row says where the next ones begin, and how many there were.
WITH w AS MATERIALIZED (
    SELECT key, conversation, status FROM run WHERE key < :before AND root IS NULL ORDER BY key DESC LIMIT :looked_at
)
SELECT * FROM (
    SELECT w.key, 0 FROM w CROSS JOIN conversation AS c ON c.key = w.conversation
    WHERE (:status IS NULL OR w.status = :status) AND (:agent IS NULL OR c.agent = :agent)
    ORDER BY w.key DESC LIMIT :limit
)
UNION ALL SELECT min(key), count(*) FROM w

-- name: find_runs_of_principal
-- The keys of an id in whatever tenant lie between it and it with a space; `until` may also end behind one key.
WITH w AS MATERIALIZED (
    SELECT key, conversation, status FROM run WHERE principal >= :principal AND principal < :until
        AND key < :before AND root IS NULL
    ORDER BY key DESC LIMIT :looked_at
)
SELECT * FROM (
    SELECT w.key, 0 FROM w CROSS JOIN conversation AS c ON c.key = w.conversation
    WHERE (:status IS NULL OR w.status = :status) AND (:agent IS NULL OR c.agent = :agent)
    ORDER BY w.key DESC LIMIT :limit
)
UNION ALL SELECT min(key), count(*) FROM w

-- name: find_runs_that_ended_badly
WITH w AS MATERIALIZED (
    SELECT key, conversation FROM run INDEXED BY run_ended_badly
    WHERE status IN ('failed', 'cancelled') AND status = :status AND key < :before AND root IS NULL
    ORDER BY key DESC LIMIT :looked_at
)
SELECT * FROM (
    SELECT w.key, 0 FROM w CROSS JOIN conversation AS c ON c.key = w.conversation
    WHERE :agent IS NULL OR c.agent = :agent
    ORDER BY w.key DESC LIMIT :limit
)
UNION ALL SELECT min(key), count(*) FROM w

-- name: find_open_runs
WITH w AS MATERIALIZED (
    SELECT key, conversation FROM run INDEXED BY run_open
    WHERE status IN ('queued', 'running', 'waiting') AND status = :status AND key < :before AND root IS NULL
    ORDER BY key DESC LIMIT :looked_at
)
SELECT * FROM (
    SELECT w.key, 0 FROM w CROSS JOIN conversation AS c ON c.key = w.conversation
    WHERE :agent IS NULL OR c.agent = :agent
    ORDER BY w.key DESC LIMIT :limit
)
UNION ALL SELECT min(key), count(*) FROM w

-- name: open_approvals
SELECT t.run, t.turn, t.n, coalesce(root.id, r.id), c.agent, c.id, r.principal, r.facts
FROM tool_call AS t INDEXED BY tool_call_open
CROSS JOIN approval AS a ON a.run = t.run AND a.turn = t.turn AND a.n = t.n
    AND a.decision IS NULL AND (a.expires_at IS NULL OR a.expires_at > :now)
CROSS JOIN run AS r ON r.key = t.run
CROSS JOIN conversation AS c ON c.key = r.conversation
LEFT JOIN run AS root ON root.key = r.root
WHERE t.status = 'open' AND (t.run, t.turn, t.n) > (:run, :turn, :n)
ORDER BY t.run, t.turn, t.n LIMIT :limit

-- name: backlog
SELECT (SELECT count(*) FROM (SELECT 1 FROM run INDEXED BY run_due
        WHERE status = 'queued' AND wake_at IS NOT NULL LIMIT :limit)),
    (SELECT count(*) FROM (SELECT 1 FROM run INDEXED BY run_leased WHERE status = 'running' LIMIT :limit)),
    (SELECT count(*) FROM (SELECT 1 FROM tool_call AS t INDEXED BY tool_call_open
        CROSS JOIN approval AS a ON a.run = t.run AND a.turn = t.turn AND a.n = t.n
            AND a.decision IS NULL AND (a.expires_at IS NULL OR a.expires_at > :now)
        WHERE t.status = 'open' LIMIT :limit))

-- name: insert_secret
INSERT INTO secret (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING

-- name: secret
SELECT value FROM secret WHERE name = :name

-- name: count_open_runs
-- Without those that other runs asked for.
SELECT (SELECT count(*) FROM run INDEXED BY run_open WHERE status IN ('queued', 'running', 'waiting'))
    - (SELECT count(*) FROM run INDEXED BY run_open_child
        WHERE status IN ('queued', 'running', 'waiting') AND root IS NOT NULL)

-- ---------------------------------------------------------------- records

-- name: keep_record
INSERT INTO record (kind, key, family, content, expires_at) VALUES (:kind, :key, :family, :content, :expires_at)
ON CONFLICT (kind, key) DO UPDATE
SET family = excluded.family, content = excluded.content, expires_at = excluded.expires_at, taken_by = NULL

-- name: find_record
SELECT kind, key, family, content, expires_at FROM record
WHERE kind = :kind AND key = :key AND taken_by IS NULL AND (expires_at IS NULL OR expires_at > :now)

-- name: find_records
SELECT kind, key, family, content, expires_at FROM record INDEXED BY record_family
WHERE kind = :kind AND family = :family AND taken_by IS NULL AND (expires_at IS NULL OR expires_at > :now)
ORDER BY key LIMIT :limit

-- name: take_record
UPDATE record SET taken_by = :taken_by, content = '', expires_at = min(coalesce(expires_at, :gone_at), :gone_at)
WHERE kind = :kind AND key = :key AND taken_by IS NULL
RETURNING 1

-- name: taken_record
SELECT 1 FROM record WHERE kind = :kind AND key = :key AND taken_by = :taken_by

-- name: forget_records
DELETE FROM record WHERE kind = :kind AND family = :family RETURNING expires_at, taken_by

-- name: expired_records
SELECT 1 FROM record INDEXED BY record_expiry WHERE expires_at <= :now LIMIT 1

-- name: sweep_records
DELETE FROM record WHERE place IN (
    SELECT place FROM record INDEXED BY record_expiry WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit
)
RETURNING 1

-- ---------------------------------------------------------------- webhooks

-- name: ids_of_webhooks
SELECT id FROM webhook WHERE run = :run

-- name: keep_webhook
INSERT INTO webhook (run, id, content, due_at, created_at) VALUES (:run, :id, :content, :now, :now)
ON CONFLICT (run, id) DO UPDATE
SET content = excluded.content, due_at = excluded.due_at, created_at = excluded.created_at,
    delivered = 0, failures = 0, fence = webhook.fence + 1, over_at = NULL, holder = NULL

-- name: find_webhook
SELECT key, id, content, delivered, failures, over_at IS NOT NULL, created_at FROM webhook
WHERE run = :run AND id = :id

-- name: list_webhooks
SELECT key, id, content, delivered, failures, over_at IS NOT NULL, created_at FROM webhook
WHERE run = :run AND key > :after
ORDER BY key LIMIT :limit

-- name: drop_webhook
DELETE FROM webhook WHERE run = :run AND id = :id

-- name: drop_webhooks
DELETE FROM webhook WHERE key IN (SELECT value FROM json_each(:rows))

-- name: due_webhooks
-- The second part is due because the calendar was set back: nothing is held, or put off, for so long.
SELECT key, due_at FROM webhook INDEXED BY webhook_due WHERE due_at <= :now
UNION ALL
SELECT key, due_at FROM webhook INDEXED BY webhook_due WHERE due_at > :latest
ORDER BY 2, 1 LIMIT :limit

-- name: claim_webhooks
UPDATE webhook SET holder = :holder, due_at = :until, fence = fence + 1
WHERE key IN (SELECT value FROM json_each(:rows)) AND (due_at <= :now OR due_at > :latest)
RETURNING key

-- name: webhooks_held
SELECT h.key, h.id, h.content, h.delivered, h.failures, h.over_at IS NOT NULL, h.created_at,
    h.fence, r.id, r.principal, r.facts
FROM json_each(:rows) AS j
CROSS JOIN webhook AS h ON h.key = j.value AND h.holder = :holder
CROSS JOIN run AS r ON r.key = h.run

-- name: renew_webhooks
UPDATE webhook SET due_at = :until
WHERE holder = :holder AND (:some IS NULL OR key IN (SELECT value FROM json_each(:some)))
RETURNING key

-- name: note_delivery
UPDATE webhook
SET delivered = max(delivered, :cursor), failures = 0,
    over_at = CASE WHEN :over THEN coalesce(over_at, :now) END,
    due_at = CASE WHEN :over THEN NULL ELSE due_at END,
    holder = CASE WHEN :over THEN NULL ELSE holder END
WHERE key = :key AND fence = :fence AND (holder IS NOT NULL OR (:over AND over_at IS NOT NULL))
RETURNING key

-- name: put_off_webhook
UPDATE webhook
SET failures = failures + (holder IS NOT NULL),
    over_at = CASE WHEN :over THEN coalesce(over_at, :now) END,
    due_at = CASE WHEN :over THEN NULL ELSE :due_at END,
    holder = NULL
WHERE key = :key AND fence = :fence
    AND (holder IS NOT NULL OR (:over AND over_at IS NOT NULL) OR (NOT :over AND due_at = :due_at))
RETURNING key

-- name: release_webhooks
UPDATE webhook SET holder = NULL, due_at = :now, fence = fence + 1 WHERE holder = :holder

-- name: webhooks_to_sweep
SELECT 1 FROM webhook INDEXED BY webhook_over WHERE over_at <= :before LIMIT 1

-- name: sweep_webhooks
DELETE FROM webhook WHERE key IN (
    SELECT key FROM webhook INDEXED BY webhook_over WHERE over_at <= :before ORDER BY over_at LIMIT :limit
)
RETURNING 1

-- ---------------------------------------------------------------- passages

-- name: find_space
SELECT key, version FROM passage_space WHERE name = :name

-- name: make_space
INSERT INTO passage_space (name) VALUES (:name) ON CONFLICT (name) DO NOTHING

-- name: touch_spaces
UPDATE passage_space SET version = version + 1 WHERE key IN (SELECT value FROM json_each(:rows))

-- name: drop_empty_spaces
DELETE FROM passage_space
WHERE key IN (SELECT value FROM json_each(:rows))
    AND NOT EXISTS (SELECT 1 FROM passage AS p WHERE p.space = passage_space.key)
    AND NOT EXISTS (SELECT 1 FROM passage_source AS s WHERE s.space = passage_space.key)

-- name: count_passages
SELECT count(*) FROM (SELECT 1 FROM passage WHERE space = :space LIMIT :limit)

-- name: passages_named
SELECT p.key, p.id, p.name, p.text, p.digest, p.version
FROM json_each(:rows) AS j CROSS JOIN passage AS p ON p.space = :space AND p.name = j.value

-- name: passages_with_ids
SELECT p.key, p.id FROM json_each(:rows) AS j CROSS JOIN passage AS p ON p.space = :space AND p.id = j.value

-- name: insert_passages
INSERT INTO passage (space, id, name, source, text, metadata, digest, created_at, updated_at) VALUES :rows

-- name: update_passages
WITH j (key, source, text, metadata, digest, version, now) AS (VALUES :rows)
UPDATE passage
SET source = j.source, text = j.text, metadata = j.metadata, digest = j.digest, version = j.version, updated_at = j.now
FROM j WHERE passage.key = j.key

-- name: keep_words
INSERT INTO passage_words (rowid, space, words) VALUES :rows

-- name: drop_words
DELETE FROM passage_words WHERE rowid IN (SELECT value FROM json_each(:rows))

-- name: merge_words
INSERT INTO passage_words (passage_words, rank) VALUES ('merge', :pages)

-- name: changed_rows
SELECT total_changes()

-- name: keep_vector
INSERT INTO passage_vector (passage, space, embedder, vector) VALUES (:passage, :space, :embedder, :vector)
ON CONFLICT (passage, embedder) DO UPDATE SET vector = excluded.vector

-- name: drop_vectors_of
DELETE FROM passage_vector WHERE passage IN (SELECT value FROM json_each(:rows))

-- name: settle_embedders
UPDATE passage SET embedder = coalesce(
    (SELECT v.embedder FROM passage_vector AS v WHERE v.passage = passage.key AND v.embedder = :embedder),
    (SELECT v.embedder FROM passage_vector AS v WHERE v.passage = passage.key LIMIT 1)
)
WHERE key IN (SELECT value FROM json_each(:rows))

-- name: passages
SELECT p.key, p.id, p.name, p.text, p.metadata, p.source, p.created_at, p.updated_at
FROM json_each(:rows) AS j CROSS JOIN passage AS p ON p.key = j.value AND p.space = :space

-- name: list_passages
SELECT key, id, name, text, metadata, source, created_at, updated_at FROM passage
WHERE space = :space AND (updated_at, key) < (:updated_at, :key)
ORDER BY updated_at DESC, key DESC LIMIT :limit

-- name: some_passages
SELECT key FROM passage WHERE space = :space ORDER BY updated_at LIMIT :limit

-- name: passages_of_source
SELECT key, name FROM passage WHERE space = :space AND source = :source

-- name: delete_passages
DELETE FROM passage WHERE key IN (SELECT value FROM json_each(:rows))

-- name: keep_source
INSERT INTO passage_source (space, source, digest) VALUES (:space, :source, :digest)
ON CONFLICT (space, source) DO UPDATE SET digest = excluded.digest

-- name: drop_source
DELETE FROM passage_source WHERE space = :space AND source = :source

-- name: unsettle_sources
UPDATE passage_source SET digest = '' WHERE space = :space

-- name: drop_sources
DELETE FROM passage_source WHERE space = :space

-- name: sources
SELECT source, digest FROM passage_source WHERE space = :space ORDER BY source

-- name: passages_by_words
SELECT rowid FROM passage_words
WHERE passage_words MATCH 'space : "' || :space || '" AND words : (' || (
    SELECT group_concat('"' || value || '"' || CASE WHEN length(value) >= :begins THEN '*' ELSE '' END, ' OR ')
    FROM json_each(:words)
) || ')'
ORDER BY bm25(passage_words, 1.0, 0.0) LIMIT :limit

-- name: vectors_of_space
SELECT key, passage, vector FROM passage_vector
WHERE space = :space AND embedder = :embedder AND key > :after
ORDER BY key LIMIT :limit

-- name: vector_size
SELECT length(vector) / 4 FROM passage_vector WHERE embedder = :embedder LIMIT 1

-- name: never_embedded
SELECT key, version, text FROM passage WHERE embedder IS NULL ORDER BY key LIMIT :limit

-- name: embedded_by_others
SELECT * FROM (
    SELECT p.key, p.version, p.text FROM passage AS p INDEXED BY passage_embedder
    WHERE p.embedder < :embedder
        AND NOT EXISTS (SELECT 1 FROM passage_vector AS v WHERE v.passage = p.key AND v.embedder = :embedder)
    LIMIT :limit
)
UNION ALL
SELECT * FROM (
    SELECT p.key, p.version, p.text FROM passage AS p INDEXED BY passage_embedder
    WHERE p.embedder > :embedder
        AND NOT EXISTS (SELECT 1 FROM passage_vector AS v WHERE v.passage = p.key AND v.embedder = :embedder)
    LIMIT :limit
)
LIMIT :limit

-- name: places_of_passages
SELECT p.key, p.version, p.space, s.name
FROM json_each(:rows) AS j CROSS JOIN passage AS p ON p.key = j.value CROSS JOIN passage_space AS s ON s.key = p.space

-- name: vectors_of_others
SELECT * FROM (
    SELECT v.key, v.passage, v.space, s.name
    FROM passage_vector AS v INDEXED BY passage_vector_embedder CROSS JOIN passage_space AS s ON s.key = v.space
    WHERE v.embedder < :embedder LIMIT :limit
)
UNION ALL
SELECT * FROM (
    SELECT v.key, v.passage, v.space, s.name
    FROM passage_vector AS v INDEXED BY passage_vector_embedder CROSS JOIN passage_space AS s ON s.key = v.space
    WHERE v.embedder > :embedder LIMIT :limit
)
LIMIT :limit

-- name: drop_vectors
DELETE FROM passage_vector WHERE key IN (SELECT value FROM json_each(:rows))

-- name: old_memories
SELECT p.key, p.space, s.name
FROM passage AS p INDEXED BY passage_age CROSS JOIN passage_space AS s ON s.key = p.space
WHERE p.source IS NULL AND p.updated_at < :before AND s.name >= 'principal:' AND s.name < 'principal;'
ORDER BY p.updated_at, p.key LIMIT :limit

-- name: still_old
SELECT p.key FROM json_each(:rows) AS j CROSS JOIN passage AS p ON p.key = j.value AND p.updated_at < :before
