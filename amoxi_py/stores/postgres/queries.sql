-- The store's statements in PostgreSQL's dialect. `@name` is a table in the store's schema. `:rows(types)` stands for the
-- rows of a whole batch, as one array for each column; a parameter `rows` elsewhere is a JSON array of keys, or of places
-- as arrays. What is read to be changed is read under the lock of its conversation, taken by an earlier statement.
--
-- `EXISTS (... OFFSET 0)` looks for each row by itself, along an index: without OFFSET 0 the planner may read a whole table
-- into a hash first, where EXISTS is not all of a condition.

-- ---------------------------------------------------------------- transactions

-- name: begin_writing
-- Plans only walk along indexes, also while a table is small or its statistics are old. A client that is frozen while it
-- has nothing on its way to the server loses its locks soon, one that is frozen while it sends loses them in the end.
SELECT set_config('lock_timeout', :patience, true),
    set_config('idle_in_transaction_session_timeout', '3s', true),
    CASE WHEN current_setting('server_version_num')::integer >= 170000
        THEN set_config('transaction_timeout', '30s', true) END,
    set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on'
        ELSE current_setting('synchronous_commit') END, true),
    set_config('plan_cache_mode', 'force_generic_plan', true),
    set_config('enable_seqscan', 'off', true),
    set_config('enable_hashjoin', 'off', true),
    set_config('enable_mergejoin', 'off', true),
    set_config('jit', 'off', true)

-- name: begin_reading
SELECT set_config('idle_in_transaction_session_timeout', '30s', true),
    set_config('plan_cache_mode', 'force_generic_plan', true),
    set_config('enable_seqscan', 'off', true),
    set_config('enable_hashjoin', 'off', true),
    set_config('enable_mergejoin', 'off', true),
    set_config('jit', 'off', true)

-- name: now
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint

-- name: ring
SELECT pg_notify(:channel, :told)

-- name: lock_names
SELECT pg_advisory_xact_lock(name) FROM unnest(:names::bigint[]) AS j (name)

-- name: lock_conversations
SELECT key FROM @conversation WHERE key = ANY(:keys::bigint[]) ORDER BY key FOR NO KEY UPDATE

-- name: lock_conversations_of
SELECT key FROM @conversation
WHERE key = ANY(ARRAY(
    SELECT unnest(:keys::bigint[])
    UNION SELECT key FROM @conversation WHERE id = ANY(:ids::text[])
    UNION SELECT conversation FROM @run WHERE id = ANY(:runs::text[])
    UNION SELECT conversation FROM @run WHERE worker = ANY(:workers::bigint[]) AND status = 'running'
))
ORDER BY key FOR NO KEY UPDATE

-- ---------------------------------------------------------------- workers

-- name: insert_worker
INSERT INTO @worker (id, expires_at, knows_children) VALUES (:id, :expires_at, true)
ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at
RETURNING key

-- name: lock_worker
SELECT key FROM @worker WHERE key = :key FOR NO KEY UPDATE

-- name: renew_worker
UPDATE @worker SET expires_at = coalesce(:now::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) + :lease::bigint
WHERE key = :key
    AND expires_at > coalesce(:now::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
RETURNING key

-- name: may_claim
-- A look before the transaction of a claim: whether any run is due, or its worker is dead.
WITH t AS MATERIALIZED (
    SELECT coalesce(:now::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint) AS now
)
SELECT (SELECT now FROM t),
    EXISTS (SELECT 1 FROM @run WHERE status = 'queued' AND wake_at <= (SELECT now FROM t))
    OR EXISTS (SELECT 1 FROM @run WHERE status = 'waiting' AND wake_at <= (SELECT now FROM t))
    OR EXISTS (SELECT 1 FROM @run WHERE status = 'queued' AND wake_at > (SELECT now FROM t) + 60000)
    OR EXISTS (SELECT 1 FROM @run WHERE waits = '["model"]' AND wake_at > (SELECT now FROM t) + 3600000)
    OR EXISTS (
        SELECT 1 FROM @worker AS w WHERE w.expires_at <= (SELECT now FROM t)
            AND EXISTS (SELECT 1 FROM @run AS r WHERE r.worker = w.key AND r.status = 'running')
    )

-- name: record_claim
INSERT INTO @worker_claim (worker, number) VALUES (:key, :number)
ON CONFLICT (worker) DO UPDATE SET number = excluded.number

-- name: delete_worker
-- Later, with the idle ones: what it began to store may still be on its way.
UPDATE @worker SET expires_at = least(expires_at, :lease_now) WHERE key = :key

-- name: expire_worker
UPDATE @worker SET expires_at = least(expires_at, :lease_now) WHERE id = :id

-- name: hand_over_runs
UPDATE @run SET status = 'queued', wake_at = :now, updated_at = :now
WHERE worker = :worker AND status = 'running'

-- ---------------------------------------------------------------- claiming

-- name: living_worker
SELECT key FROM @worker WHERE key = :key AND expires_at > :lease_now

-- name: workers_to_look_at
SELECT w.key, coalesce(c.number, 0), w.expires_at <= :lease_now
FROM @worker AS w LEFT JOIN @worker_claim AS c ON c.worker = w.key
WHERE w.key = :key OR w.expires_at <= :lease_now

-- name: delete_idle_workers
-- Long after: what it had begun to store while its lease was current is committed by then.
DELETE FROM @worker WHERE key = ANY(ARRAY(
    SELECT w.key FROM @worker AS w
    WHERE w.key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v))
        AND w.expires_at <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint - 600000
        AND NOT EXISTS (SELECT 1 FROM @run WHERE @run.worker = w.key AND @run.status = 'running')
    ORDER BY w.key FOR UPDATE SKIP LOCKED
))

-- name: runs_of_workers
SELECT key FROM @run
WHERE worker = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v)) AND status = 'running'
ORDER BY crashes, key LIMIT :limit

-- name: suspects_among
-- Of these runs, those that were taken over before and are taken over again.
SELECT crashes, key FROM @run
WHERE key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v))
    AND status = 'running' AND crashes > 0
ORDER BY 1, 2

-- name: suspects_of_worker
SELECT max(crashes), count(*) FROM @run WHERE worker = :worker AND status = 'running' AND crashes > 1

-- name: due_runs
-- The last two are due because the calendar was set back: no queued run, and none that waits for its model, is told
-- to wait for so long.
SELECT * FROM (
    (SELECT wake_at, key, principal FROM @run WHERE status = 'queued' AND wake_at <= :now
        ORDER BY wake_at, key LIMIT :limit)
    UNION ALL
    (SELECT wake_at, key, principal FROM @run WHERE status = 'waiting' AND wake_at <= :now
        ORDER BY wake_at, key LIMIT :limit)
    UNION ALL
    (SELECT wake_at, key, principal FROM @run WHERE status = 'queued' AND wake_at > :now::bigint + 60000
        ORDER BY wake_at, key LIMIT :limit)
    UNION ALL
    (SELECT wake_at, key, principal FROM @run WHERE waits = '["model"]' AND wake_at > :now::bigint + 3600000
        ORDER BY wake_at, key LIMIT :limit)
) AS due
ORDER BY 1, 2 LIMIT :limit

-- name: due_runs_by_principal
-- One run each of the next principals that have any: an index is walked from principal to principal.
WITH RECURSIVE found AS (
    (SELECT key, principal, 1 AS n FROM @run
        WHERE status = 'queued' AND wake_at <= :now AND principal > :after
        ORDER BY principal, wake_at, key LIMIT 1)
    UNION ALL
    SELECT next.key, next.principal, found.n + 1
    FROM found CROSS JOIN LATERAL (
        SELECT key, principal FROM @run
        WHERE status = 'queued' AND wake_at <= :now AND principal > found.principal
        ORDER BY principal, wake_at, key LIMIT 1
    ) AS next
    WHERE found.n < :limit
)
SELECT key, principal FROM found

-- name: due_runs_among
-- Of these runs and conversations, and all that runs below them.
SELECT r.key
FROM @run AS r
WHERE r.key = ANY(ARRAY(
        SELECT key FROM @run WHERE id = ANY(ARRAY(SELECT json_array_elements_text(:runs::json)))
        UNION
        SELECT child.key FROM @run AS mine JOIN @run AS child ON child.root = mine.key
        WHERE mine.id = ANY(ARRAY(SELECT json_array_elements_text(:runs::json)))
        UNION
        SELECT mine.key FROM @conversation AS c
        JOIN @run AS mine ON mine.conversation = c.key AND mine.status IN ('queued', 'running', 'waiting')
        WHERE c.id = ANY(ARRAY(SELECT json_array_elements_text(:conversations::json)))
    ))
    AND ((r.status = 'running'
            AND r.worker = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:dead::json) AS v)))
        OR (r.status IN ('queued', 'waiting') AND r.wake_at <= :now)
        OR (r.status = 'queued' AND r.wake_at > :now::bigint + 60000)
        OR (r.status = 'waiting' AND r.waits = '["model"]' AND r.wake_at > :now::bigint + 3600000))
ORDER BY r.key LIMIT :limit

-- name: lock_conversations_of_runs
-- Nobody is waited for: what another one writes to at this moment is left to the next claim.
SELECT key FROM @conversation WHERE key = ANY(ARRAY(
    SELECT conversation FROM @run
    WHERE key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v))
))
ORDER BY key FOR NO KEY UPDATE SKIP LOCKED

-- name: end_frozen_clients
-- Whoever keeps the conversations of these runs locked, and is in the middle of what it sends for longer than any client
-- that is not frozen: the server itself waits for such a client, before its version 17 for ever.
SELECT pg_terminate_backend(a.pid) FROM @run AS r
JOIN @conversation AS c ON c.key = r.conversation
JOIN pg_stat_activity AS a ON a.backend_xid = c.xmax
WHERE r.key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v))
    AND a.usename = current_user
    AND a.state = 'active' AND a.wait_event = 'ClientRead' AND a.state_change < clock_timestamp() - interval '3 s'

-- name: runs_still_due
SELECT r.key FROM @run AS r
WHERE r.key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v))
    AND r.conversation = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:conversations::json) AS v))
    AND ((r.status = 'running'
            AND r.worker = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:dead::json) AS v)))
        OR (r.status IN ('queued', 'waiting') AND r.wake_at <= :now)
        OR (r.status = 'queued' AND r.wake_at > :now::bigint + 60000)
        OR (r.status = 'waiting' AND r.waits = '["model"]' AND r.wake_at > :now::bigint + 3600000))

-- name: runs_of_claim
-- In the order in which they were claimed, which is that of the events that told of it.
SELECT r.key FROM @run AS r WHERE r.worker = :worker AND r.status = 'running' AND r.claim = :number
ORDER BY (
    SELECT max(e.key) FROM @event AS e
    WHERE e.conversation = r.conversation AND e.run = r.key AND e.type IN (2, 3)
)

-- name: claim_runs
UPDATE @run
SET status = 'running',
    worker = :worker,
    fence = fence + 1,
    claim = :number,
    changes = 0,
    attempt = attempt + CASE WHEN attempt = 0 OR status = 'running' THEN 1 ELSE 0 END,
    crashes = crashes + CASE WHEN status = 'running' THEN 1 ELSE 0 END,
    wake_at = NULL,
    waits = NULL,
    child_ended = NULL,
    updated_at = :now
WHERE key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v))

-- name: leased_runs
SELECT r.key, r.id, r.conversation, r.worker, r.fence, coalesce(r.agent, c.agent), c.id, r.principal, r.facts, r.attempt, r.crashes,
    r.changes, r.model_failures, r.requests, r.input_tokens, r.output_tokens, r.cached_tokens, r.written_tokens, r.cost,
    r.instructions, r.created_at, r.trace, r.first_seq, r.root, c.last_seq
FROM json_array_elements_text(:rows::json) WITH ORDINALITY AS j (key, place)
JOIN @run AS r ON r.key = j.key::bigint
JOIN @conversation AS c ON c.key = r.conversation
ORDER BY j.place

-- name: ancestors_of_runs
-- The runs above some, the root first, each with its call that the next one below was started by.
WITH RECURSIVE w (run, key, turn, n, height) AS (
    SELECT r.key, r.parent, r.parent_turn, r.parent_n, 1
    FROM json_array_elements_text(:rows::json) AS j (key) JOIN @run AS r ON r.key = j.key::bigint
    WHERE r.parent IS NOT NULL
    UNION ALL
    SELECT w.run, r.parent, r.parent_turn, r.parent_n, w.height + 1
    FROM w JOIN @run AS r ON r.key = w.key WHERE r.parent IS NOT NULL
)
SELECT w.run, r.key, r.id, coalesce(r.agent, c.agent), w.turn, w.n, r.created_at
FROM w JOIN @run AS r ON r.key = w.key JOIN @conversation AS c ON c.key = r.conversation
ORDER BY w.run, w.height DESC

-- name: leased_run
SELECT key FROM @run WHERE key = :run AND status = 'running' AND worker = :worker AND fence = :fence

-- name: release_run
UPDATE @run SET status = 'queued', wake_at = :wake_at, updated_at = :now
WHERE key = :run AND status = 'running' AND worker = :worker AND fence = :fence
RETURNING key

-- name: release_crashed_run
UPDATE @run
SET status = 'queued', wake_at = :wake_at, crashes = crashes + 1, attempt = attempt + 1, updated_at = :now
WHERE key = :run AND status = 'running' AND worker = :worker AND fence = :fence
RETURNING key

-- name: let_go_cancelled_run
UPDATE @run SET worker = NULL
WHERE key = :run AND status = 'cancelled' AND worker = :worker AND fence = :fence::integer + 1
RETURNING conversation

-- name: hold_conversation
UPDATE @conversation SET held_until = :until WHERE key = :conversation

-- name: wake_next_runs
UPDATE @run SET wake_at = j.wake_at
FROM :rows(bigint, bigint) AS j (conversation, wake_at)
WHERE @run.key = (
        SELECT head.key FROM @run AS head
        WHERE head.conversation = j.conversation AND head.status IN ('queued', 'running', 'waiting')
        ORDER BY head.key LIMIT 1
    )
    AND @run.status = 'queued'
    AND (@run.wake_at IS NULL OR @run.wake_at > j.wake_at)

-- ---------------------------------------------------------------- admitting

-- name: lock_gate
SELECT pg_advisory_xact_lock('@principal_usage'::regclass::oid::bigint)

-- name: count_in_flight
SELECT count(*) FROM (
    SELECT 1 FROM @run WHERE status IN ('queued', 'running') LIMIT :limit
) AS counted

-- name: in_flight_in_conversation
SELECT 1 FROM @run
WHERE conversation = :conversation AND status IN ('queued', 'running', 'waiting') AND status <> 'waiting' LIMIT 1

-- name: standings
-- What counts for principals now: how many of their runs are in flight, up to a limit, and what the rows say of this
-- minute and this day.
SELECT j.principal,
    (SELECT count(*) FROM (
        SELECT 1 FROM @run AS r
        WHERE r.principal = j.principal AND r.status IN ('queued', 'running') LIMIT :limit
    ) AS counted),
    CASE WHEN u.minute = :minute THEN u.requests ELSE 0 END,
    CASE WHEN u.day = :day THEN u.runs ELSE 0 END,
    CASE WHEN u.day = :day THEN u.tokens ELSE 0 END,
    CASE WHEN u.day = :day THEN u.cost ELSE 0 END
FROM json_array_elements_text(:rows::json) AS j (principal)
LEFT JOIN @principal_usage AS u ON u.principal = j.principal

-- name: usage_of_runs
SELECT principal, input_tokens + output_tokens, cost
FROM @run WHERE key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v))

-- name: add_used
INSERT INTO @principal_usage AS u (principal, minute, day, requests, runs, tokens, cost)
SELECT * FROM :rows(text, bigint, bigint, bigint, bigint, bigint, bigint)
ON CONFLICT (principal) DO UPDATE
SET requests = excluded.requests + CASE WHEN u.minute = excluded.minute THEN u.requests ELSE 0 END,
    runs = excluded.runs + CASE WHEN u.day = excluded.day THEN u.runs ELSE 0 END,
    tokens = excluded.tokens + CASE WHEN u.day = excluded.day THEN u.tokens ELSE 0 END,
    cost = excluded.cost + CASE WHEN u.day = excluded.day THEN u.cost ELSE 0 END,
    minute = excluded.minute,
    day = excluded.day

-- name: forget_usage
DELETE FROM @principal_usage WHERE principal = :principal

-- name: old_usage
SELECT 1 FROM @principal_usage WHERE day < :day LIMIT 1

-- name: sweep_usage
DELETE FROM @principal_usage WHERE principal = ANY(ARRAY(
    SELECT principal FROM @principal_usage WHERE day < :day LIMIT :limit FOR UPDATE SKIP LOCKED
))

-- ---------------------------------------------------------------- submitting

-- name: known_submissions
-- Those of which the run or the conversation is there, whether it is the run, and the conversation with whether a run of
-- it is open.
SELECT j.place - 1, r.key IS NOT NULL, c.key, c.principal, c.agent, c.last_seq, c.held_until, EXISTS (
    SELECT 1 FROM @run AS o WHERE o.conversation = c.key AND o.status IN ('queued', 'running', 'waiting')
)
FROM json_array_elements(:rows::json) WITH ORDINALITY AS j (ids, place)
LEFT JOIN @run AS r ON r.id = j.ids ->> 0
LEFT JOIN @conversation AS c ON c.id = j.ids ->> 1
WHERE r.key IS NOT NULL OR c.key IS NOT NULL

-- name: run_of_submission
SELECT key, worker, status FROM @run WHERE id = :id

-- name: idempotency_key
SELECT digest, run_id, created_at FROM @idempotency_key
WHERE principal = :principal AND agent = :agent AND name = :name

-- name: oldest_idempotency_keys
SELECT key, created_at FROM @idempotency_key ORDER BY key LIMIT :limit FOR UPDATE SKIP LOCKED

-- name: delete_idempotency_keys
DELETE FROM @idempotency_key
WHERE key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v))

-- name: insert_idempotency_key
INSERT INTO @idempotency_key (principal, agent, name, digest, run_id, created_at)
VALUES (:principal, :agent, :name, :digest, :run_id, :now)
ON CONFLICT (principal, agent, name) DO UPDATE
SET digest = excluded.digest, run_id = excluded.run_id, created_at = excluded.created_at

-- name: conversation_to_extend
SELECT key, principal, agent, last_seq, held_until FROM @conversation WHERE id = :id

-- name: insert_conversations
INSERT INTO @conversation (id, principal, agent, title, last_seq, created_at, updated_at)
SELECT * FROM :rows(text, text, text, text, integer, bigint, bigint)
RETURNING key

-- name: open_runs
-- Those that no other run asked for, and whether they, or what runs below them, wait for somebody else: for a decision
-- that is not the owner's, or for a signal.
SELECT r.key,
    EXISTS (
        SELECT 1 FROM @approval AS a JOIN @tool_call AS t ON t.run = a.run AND t.turn = a.turn AND t.n = a.n
        WHERE a.run = r.key AND a.decision IS NULL AND a.approver <> 'owner' AND t.status = 'open' OFFSET 0
    ) OR EXISTS (
        SELECT 1 FROM @tool_call AS t
        JOIN @wait AS w ON w.run = t.run AND w.turn = t.turn AND w.n = t.n AND w.k = t.waits
        WHERE t.run = r.key AND t.waits IS NOT NULL AND t.status = 'started'
            AND w.kind = 'signal' AND w.value IS NULL AND (w.until IS NULL OR w.until > :now) OFFSET 0
    ) OR EXISTS (
        SELECT 1 FROM @run AS child
        JOIN @approval AS a ON a.run = child.key
        JOIN @tool_call AS t ON t.run = a.run AND t.turn = a.turn AND t.n = a.n
        WHERE child.root = r.key AND child.status IN ('queued', 'running', 'waiting')
            AND a.decision IS NULL AND a.approver <> 'owner' AND t.status = 'open' OFFSET 0
    ) OR EXISTS (
        SELECT 1 FROM @run AS child
        JOIN @tool_call AS t ON t.run = child.key AND t.waits IS NOT NULL
        JOIN @wait AS w ON w.run = t.run AND w.turn = t.turn AND w.n = t.n AND w.k = t.waits
        WHERE child.root = r.key AND child.status IN ('queued', 'running', 'waiting') AND t.status = 'started'
            AND w.kind = 'signal' AND w.value IS NULL AND (w.until IS NULL OR w.until > :now) OFFSET 0
    )
FROM @run AS r
WHERE r.conversation = :conversation AND r.status IN ('queued', 'running', 'waiting') AND r.root IS NULL
ORDER BY r.key

-- name: insert_runs
INSERT INTO @run (id, conversation, principal, facts, status, wake_at, worker, fence, attempt, first_seq,
    created_at, updated_at, trace)
SELECT * FROM :rows(text, bigint, text, text, text, bigint, bigint, integer, integer, integer, bigint, bigint,
    text)
RETURNING key

-- name: known_runs
SELECT id FROM @run WHERE id = ANY(ARRAY(SELECT json_array_elements_text(:rows::json)))

-- name: insert_child_runs
INSERT INTO @run (id, conversation, principal, facts, status, wake_at, first_seq, created_at, updated_at, agent, root,
    parent, parent_turn, parent_n, trace)
SELECT j.child ->> 0, p.conversation, p.principal, p.facts, 'queued', :now::bigint, (j.child ->> 1)::integer,
    :now::bigint, :now::bigint, j.child ->> 2, coalesce(p.root, p.key), p.key, (j.child ->> 4)::integer,
    (j.child ->> 5)::integer, p.trace
FROM json_array_elements(:rows::json) WITH ORDINALITY AS j (child, place)
JOIN @run AS p ON p.key = (j.child ->> 3)::bigint
ORDER BY j.place
RETURNING key, id, (SELECT c.id FROM @conversation AS c WHERE c.key = @run.conversation)

-- ---------------------------------------------------------------- a worker's changes

-- name: runs_to_change
SELECT r.key, r.status, r.worker, r.fence, r.changes, c.last_seq,
    EXISTS (SELECT 1 FROM @event AS e WHERE e.run = r.key AND e.type = 4 OFFSET 0),
    r.root, t.id, r.parent, p.id, r.parent_turn, r.parent_n
FROM json_array_elements_text(:rows::json) AS j (key)
JOIN @run AS r ON r.key = j.key::bigint
JOIN @conversation AS c ON c.key = r.conversation
LEFT JOIN @run AS t ON t.key = r.root
LEFT JOIN @run AS p ON p.key = r.parent

-- name: calls_decided_by_people
SELECT a.run, a.turn, a.n
FROM json_array_elements(:rows::json) AS j (place)
JOIN @approval AS a ON a.run = (j.place ->> 0)::bigint AND a.turn = (j.place ->> 1)::integer
    AND a.n = (j.place ->> 2)::integer
WHERE a.decision <> 'expire'

-- name: insert_messages
INSERT INTO @message (run, turn, id, text, status, files, created_at, kept)
SELECT * FROM :rows(bigint, integer, text, text, text, text, bigint, text)

-- name: insert_calls
INSERT INTO @tool_call (run, turn, n, tool, arguments, effect, status, tries, failures, result)
SELECT * FROM :rows(bigint, integer, integer, text, text, text, text, integer, integer, text)

-- name: insert_approvals
INSERT INTO @approval (run, turn, n, approver, created_at, expires_at, decision, decided_by, reason, arguments, whose)
SELECT j.run, j.turn, j.n, j.approver, j.created_at, j.expires_at, j.decision, j.decided_by, j.reason, j.arguments,
    CASE WHEN j.decision IS NOT NULL THEN NULL
        WHEN j.approver = 'owner' THEN r.principal
        ELSE substr(r.principal, strpos(r.principal || chr(31), chr(31)))
    END
FROM :rows(bigint, integer, integer, text, bigint, bigint, text, text, text, text)
    AS j (run, turn, n, approver, created_at, expires_at, decision, decided_by, reason, arguments)
JOIN @run AS r ON r.key = j.run

-- name: start_calls
UPDATE @tool_call AS t
SET status = 'started', tries = t.tries + 1, failures = t.failures + j.failed
FROM :rows(bigint, integer, integer, integer) AS j (run, turn, n, failed)
WHERE t.run = j.run AND t.turn = j.turn AND t.n = j.n AND t.status IN ('open', 'started')

-- name: settle_calls
UPDATE @tool_call AS t SET status = j.status, result = j.result
FROM :rows(bigint, integer, integer, text, text) AS j (run, turn, n, status, result)
WHERE t.run = j.run AND t.turn = j.turn AND t.n = j.n AND t.status IN ('open', 'started')

-- name: expire_approvals
UPDATE @approval AS a SET decision = 'expire', decided_at = j.decided_at, whose = NULL
FROM :rows(bigint, integer, integer, bigint) AS j (run, turn, n, decided_at)
WHERE a.run = j.run AND a.turn = j.turn AND a.n = j.n AND a.decision IS NULL

-- name: forget_failed_steps
DELETE FROM @step AS s USING :rows(bigint, integer, integer) AS j (run, turn, n)
WHERE s.run = j.run AND s.turn = j.turn AND s.n = j.n AND s.failed

-- name: insert_waits
INSERT INTO @wait (run, turn, n, k, kind, name, schema, created_at, until)
SELECT * FROM :rows(bigint, integer, integer, integer, text, text, text, bigint, bigint)
ON CONFLICT (run, turn, n, k) DO NOTHING

-- name: count_waits
UPDATE @tool_call AS t SET waits = greatest(t.waits, j.k)
FROM :rows(bigint, integer, integer, integer) AS j (run, turn, n, k)
WHERE t.run = j.run AND t.turn = j.turn AND t.n = j.n

-- name: oldest_kept_signal
SELECT key, payload, given_by FROM @kept_signal
WHERE run = :run AND name = :name AND payload IS NOT NULL
ORDER BY key LIMIT 1

-- name: take_signal
UPDATE @kept_signal SET payload = NULL WHERE key = :key

-- name: insert_summaries
INSERT INTO @summary (conversation, thread, run, turn, text, created_at)
SELECT j.conversation, CASE WHEN r.root IS NULL THEN 0 ELSE r.key END, r.key, j.turn, j.text, j.now
FROM :rows(bigint, text, integer, text, bigint) AS j (conversation, summed_up, turn, text, now)
JOIN @run AS r ON r.id = j.summed_up AND r.conversation = j.conversation

-- name: insert_steps
INSERT INTO @step (run, turn, n, name, value, failed)
SELECT j.run, j.turn, j.n, j.name, j.value, j.failed <> 0
FROM :rows(bigint, integer, integer, text, text, integer) AS j (run, turn, n, name, value, failed)
ON CONFLICT (run, turn, n, name) DO NOTHING

-- name: drop_deltas
DELETE FROM @event AS e
WHERE e.run = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v)) AND e.type = 4

-- name: update_runs
UPDATE @run AS r
SET changes = j.changes,
    crashes = CASE WHEN j.progress <> 0 THEN 0 ELSE r.crashes END,
    model_failures = coalesce(j.model_failures, r.model_failures),
    requests = coalesce(j.requests, r.requests),
    input_tokens = coalesce(j.input_tokens, r.input_tokens),
    output_tokens = coalesce(j.output_tokens, r.output_tokens),
    cached_tokens = coalesce(j.cached_tokens, r.cached_tokens),
    written_tokens = coalesce(j.written_tokens, r.written_tokens),
    cost = coalesce(j.cost, r.cost),
    updated_at = j.now
FROM :rows(bigint, integer, integer, integer, bigint, bigint, bigint, bigint, bigint, bigint, bigint)
    AS j (run, changes, progress, model_failures, requests, input_tokens, output_tokens, cached_tokens, written_tokens,
        cost, now)
WHERE r.key = j.run

-- name: keep_instructions
UPDATE @run AS r SET instructions = j.instructions
FROM :rows(bigint, text) AS j (run, instructions) WHERE r.key = j.run

-- name: end_runs
UPDATE @run AS r
SET changes = j.changes,
    crashes = CASE WHEN j.progress <> 0 THEN 0 ELSE r.crashes END,
    model_failures = coalesce(j.model_failures, r.model_failures),
    requests = coalesce(j.requests, r.requests),
    input_tokens = coalesce(j.input_tokens, r.input_tokens),
    output_tokens = coalesce(j.output_tokens, r.output_tokens),
    cached_tokens = coalesce(j.cached_tokens, r.cached_tokens),
    written_tokens = coalesce(j.written_tokens, r.written_tokens),
    cost = coalesce(j.cost, r.cost),
    updated_at = j.now,
    status = j.status,
    ended_seq = j.ended_seq,
    error = j.error,
    result = j.result
FROM :rows(bigint, integer, integer, integer, bigint, bigint, bigint, bigint, bigint, bigint, bigint, text, integer,
        text, text)
    AS j (run, changes, progress, model_failures, requests, input_tokens, output_tokens, cached_tokens, written_tokens,
        cost, now, status, ended_seq, error, result)
WHERE r.key = j.run

-- name: insert_events
INSERT INTO @event (conversation, seq, run, type, turn, n, data, hidden, source)
SELECT j.conversation, j.seq, j.run, j.type, j.turn, j.n, j.data, j.hidden <> 0, j.source
FROM :rows(bigint, integer, bigint, smallint, integer, integer, text, integer, bigint)
    AS j (conversation, seq, run, type, turn, n, data, hidden, source)

-- name: update_conversations
UPDATE @conversation AS c SET last_seq = j.last_seq, updated_at = j.now
FROM :rows(bigint, integer, bigint) AS j (conversation, last_seq, now)
WHERE c.key = j.conversation

-- name: decided_open_calls
SELECT t.n FROM @tool_call AS t JOIN @approval AS a ON a.run = t.run AND a.turn = t.turn AND a.n = t.n
WHERE t.run = :run AND t.status = 'open' AND a.decision IS NOT NULL

-- name: waits_over_by_value
SELECT t.n FROM @tool_call AS t JOIN @wait AS w ON w.run = t.run AND w.turn = t.turn AND w.n = t.n AND w.k = t.waits
WHERE t.run = :run AND t.waits IS NOT NULL AND t.status = 'started' AND w.value IS NOT NULL
LIMIT 1

-- name: child_that_ended
SELECT key FROM @run WHERE key = :run AND child_ended

-- name: calls_of_ended_children
-- Calls that wait for a run that has ended and has not told them.
SELECT t.turn, t.n FROM @tool_call AS t
JOIN @wait AS w ON w.run = t.run AND w.turn = t.turn AND w.n = t.n AND w.k = t.waits
JOIN @run AS child ON child.id = w.name
WHERE t.run = :run AND t.waits IS NOT NULL AND t.status = 'started' AND w.kind = 'child'
    AND child.status NOT IN ('queued', 'running', 'waiting')

-- name: child_runs
SELECT key FROM @run
WHERE key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v)) AND root IS NOT NULL

-- name: wake_parents
UPDATE @run AS r SET status = 'queued', wake_at = j.now, waits = NULL, crashes = 0, updated_at = j.now
FROM :rows(bigint, bigint) AS j (run, now) WHERE r.key = j.run AND r.status = 'waiting'

-- name: tell_parents
UPDATE @run AS r SET child_ended = true, crashes = 0
FROM :rows(bigint) AS j (run) WHERE r.key = j.run AND r.status = 'running'

-- name: heard_of_children
UPDATE @run SET child_ended = NULL WHERE key = :run AND child_ended

-- name: pause_run
UPDATE @run SET status = 'waiting', wake_at = :until, waits = :kinds WHERE key = :run

-- ---------------------------------------------------------------- ending a run from outside

-- name: run_to_cancel
SELECT r.id, r.conversation, r.status, r.ended_seq, r.worker, c.last_seq, c.held_until,
    r.root, t.id, r.parent, p.id, r.parent_turn, r.parent_n
FROM @run AS r
JOIN @conversation AS c ON c.key = r.conversation
LEFT JOIN @run AS t ON t.key = r.root
LEFT JOIN @run AS p ON p.key = r.parent
WHERE r.key = :run

-- name: open_runs_below
SELECT key, parent FROM @run
WHERE root = :root AND status IN ('queued', 'running', 'waiting') ORDER BY key

-- name: tree_that_goes_on
-- Of the tree of a cancelled run, what keeps the conversation's next run waiting: its root while that is open, and runs
-- that a worker may still be busy with.
SELECT o.key FROM @run AS r
JOIN @run AS o ON o.key = coalesce(r.root, r.key)
WHERE r.key = :run AND o.key <> r.key
    AND (o.status IN ('queued', 'running', 'waiting') OR (o.status = 'cancelled' AND o.worker IS NOT NULL))
UNION ALL
SELECT o.key FROM @run AS r
JOIN @run AS o ON o.root = coalesce(r.root, r.key)
WHERE r.key = :run AND o.key <> r.key AND o.status = 'cancelled' AND o.worker IS NOT NULL

-- name: deltas
SELECT data FROM @event WHERE run = :run AND type = 4 ORDER BY seq

-- name: cancel_run
UPDATE @run
SET status = 'cancelled', fence = fence + 1, ended_seq = :ended_seq, wake_at = NULL, waits = NULL, updated_at = :now,
    worker = CASE WHEN status = 'running' THEN worker END
WHERE key = :run

-- name: close_approvals
UPDATE @approval AS a SET whose = NULL
FROM :rows(bigint) AS j (run) WHERE a.run = j.run AND a.whose IS NOT NULL

-- ---------------------------------------------------------------- deciding

-- name: call_view
SELECT r.key, r.conversation, r.status, r.ended_seq, c.agent, c.id, r.principal, r.facts, r.root, t.id, c.last_seq
FROM @run AS r JOIN @conversation AS c ON c.key = r.conversation LEFT JOIN @run AS t ON t.key = r.root
WHERE r.id = :run_id

-- name: decide_approval
UPDATE @approval
SET decision = :decision, decided_at = :now, decided_by = :by, reason = :reason, arguments = :arguments, whose = NULL
WHERE run = :run AND turn = :turn AND n = :n

-- name: wake_run
UPDATE @run SET status = 'queued', wake_at = :now, waits = NULL, updated_at = :now
WHERE key = :run AND status = 'waiting'

-- ---------------------------------------------------------------- answering and signalling

-- name: give_to_wait
UPDATE @wait SET value = :value, given_by = :by
WHERE run = :run AND turn = :turn AND n = :n AND k = :k AND value IS NULL
RETURNING k

-- name: run_to_signal
SELECT r.key, r.conversation, r.status, r.ended_seq, r.principal, r.root,
    (SELECT s.digest FROM @kept_signal AS s WHERE s.id = :signal),
    (SELECT count(*) FROM (
        SELECT 1 FROM @kept_signal AS s WHERE s.run = r.key AND s.payload IS NOT NULL LIMIT :limit
    ) AS kept),
    c.last_seq
FROM @run AS r JOIN @conversation AS c ON c.key = r.conversation
WHERE r.id = :id AND (:agent::text IS NULL OR c.agent = :agent)

-- name: oldest_wait_for_signal
SELECT t.turn, t.n, w.k
FROM @tool_call AS t JOIN @wait AS w ON w.run = t.run AND w.turn = t.turn AND w.n = t.n AND w.k = t.waits
WHERE t.run = :run AND t.waits IS NOT NULL AND t.status = 'started' AND w.kind = 'signal' AND w.name = :name
    AND w.value IS NULL AND (w.until IS NULL OR w.until > :now)
ORDER BY w.created_at, t.turn, t.n LIMIT 1

-- name: insert_signal
INSERT INTO @kept_signal (run, id, name, payload, digest, given_by, created_at)
VALUES (:run, :id, :name, :payload, :digest, :by, :now)

-- ---------------------------------------------------------------- erasing

-- name: conversation_to_erase
SELECT key FROM @conversation
WHERE id = :id AND principal = :principal AND (:agent::text IS NULL OR agent = :agent)

-- name: erase_steps
DELETE FROM @step WHERE run = ANY(ARRAY(SELECT key FROM @run WHERE conversation = :conversation))

-- name: erase_waits
DELETE FROM @wait WHERE run = ANY(ARRAY(SELECT key FROM @run WHERE conversation = :conversation))

-- name: erase_signals
DELETE FROM @kept_signal WHERE run = ANY(ARRAY(SELECT key FROM @run WHERE conversation = :conversation))

-- name: erase_webhooks
DELETE FROM @webhook WHERE run = ANY(ARRAY(SELECT key FROM @run WHERE conversation = :conversation))

-- name: erase_records
DELETE FROM @record WHERE family = ANY(ARRAY(
    SELECT id FROM @run WHERE conversation = :conversation
    UNION ALL
    SELECT id FROM @conversation WHERE key = :conversation
))

-- name: erase_summaries
DELETE FROM @summary WHERE conversation = :conversation

-- name: erase_approvals
DELETE FROM @approval WHERE run = ANY(ARRAY(SELECT key FROM @run WHERE conversation = :conversation))

-- name: erase_calls
DELETE FROM @tool_call WHERE run = ANY(ARRAY(SELECT key FROM @run WHERE conversation = :conversation))

-- name: erase_messages
DELETE FROM @message WHERE run = ANY(ARRAY(SELECT key FROM @run WHERE conversation = :conversation))

-- name: keep_erased_runs
INSERT INTO @erased_run (run, id, conversation, seq, erased_at)
SELECT r.key, r.id, r.conversation, r.ended_seq, :now::bigint
FROM @run AS r JOIN @event AS e ON e.conversation = r.conversation AND e.seq = r.ended_seq
WHERE r.conversation = :conversation AND r.updated_at > :since

-- name: erase_events
DELETE FROM @event AS e
WHERE e.conversation = :conversation
    AND NOT EXISTS (SELECT 1 FROM @erased_run AS x WHERE x.run = e.run AND x.seq = e.seq)

-- name: erase_data_of_events
UPDATE @event SET data = NULL WHERE conversation = :conversation AND data IS NOT NULL

-- name: forget_erased_events
DELETE FROM @event AS e USING (
    SELECT run, conversation, seq FROM @erased_run WHERE erased_at <= :before
    ORDER BY run FOR UPDATE SKIP LOCKED
) AS x
WHERE e.conversation = x.conversation AND e.seq = x.seq

-- name: forget_erased_runs
DELETE FROM @erased_run WHERE run = ANY(ARRAY(
    SELECT run FROM @erased_run AS x WHERE erased_at <= :before
        AND NOT EXISTS (SELECT 1 FROM @event AS e WHERE e.conversation = x.conversation AND e.seq = x.seq)
    ORDER BY run FOR UPDATE SKIP LOCKED
))

-- name: erase_runs
DELETE FROM @run WHERE conversation = :conversation

-- name: erase_conversation
DELETE FROM @conversation WHERE key = :conversation

-- ---------------------------------------------------------------- what is old

-- name: conversations_after
-- Of the next ones those that nothing was added to since a time and that have no open run, and when each began.
SELECT c.key, c.created_at, c.updated_at <= :before AND NOT EXISTS (
    SELECT 1 FROM @run AS r WHERE r.conversation = c.key AND r.status IN ('queued', 'running', 'waiting') OFFSET 0
)
FROM @conversation AS c WHERE c.key > :key ORDER BY c.key LIMIT :limit

-- name: conversations_to_purge
SELECT c.key, (SELECT count(*) FROM @run AS r WHERE r.conversation = c.key AND r.root IS NULL)
FROM json_array_elements_text(:rows::json) AS j (key) JOIN @conversation AS c ON c.key = j.key::bigint
WHERE c.updated_at <= :before AND NOT EXISTS (
    SELECT 1 FROM @run AS r WHERE r.conversation = c.key AND r.status IN ('queued', 'running', 'waiting') OFFSET 0
)

-- name: times_of_oldest_keys
SELECT created_at FROM @idempotency_key WHERE key >= 0 ORDER BY key LIMIT :limit

-- ---------------------------------------------------------------- all of a principal's

-- name: keys_of_principal
SELECT key FROM @idempotency_key WHERE principal = :principal LIMIT :limit FOR UPDATE SKIP LOCKED

-- name: files_of_principal
SELECT key, id, name, media_type, size, created_at, digest, blob FROM @file
WHERE principal = :principal AND key > :after ORDER BY principal, key LIMIT :limit

-- name: files_to_forget
SELECT key, blob FROM @file WHERE principal = :principal ORDER BY principal, key LIMIT :limit FOR UPDATE

-- name: forget_records_of
WITH mine AS MATERIALIZED (
    SELECT kind, key FROM @record WHERE family = :family LIMIT :limit FOR UPDATE SKIP LOCKED
)
DELETE FROM @record AS r USING mine WHERE r.kind = mine.kind AND r.key = mine.key
RETURNING r.taken_by

-- name: decisions_of
-- An id of another tenant is somebody else.
SELECT a.run, a.turn, a.n, r.id, a.decision, a.decided_at, a.reason
FROM @approval AS a JOIN @run AS r ON r.key = a.run
WHERE a.decided_by = :by AND (a.run, a.turn, a.n) > (:run::bigint, :turn::integer, :n::integer)
    AND substr(r.principal, strpos(r.principal || chr(31), chr(31))) = :tenant
ORDER BY a.run, a.turn, a.n LIMIT :limit

-- name: forget_deciders
UPDATE @approval AS a SET decided_by = NULL
FROM :rows(bigint, integer, integer, text) AS j (run, turn, n, decided_by)
WHERE a.run = j.run AND a.turn = j.turn AND a.n = j.n AND a.decided_by = j.decided_by

-- name: all_runs_of_conversation
SELECT r.key FROM @conversation AS c JOIN @run AS r ON r.conversation = c.key
WHERE c.id = :id AND c.principal = :principal AND r.key > :after ORDER BY r.key LIMIT :limit

-- name: summaries_of_runs
-- Of runs of one conversation; the first of them is given.
SELECT s.run, s.text, s.created_at FROM @run AS r JOIN @summary AS s ON s.conversation = r.conversation
WHERE r.key = :run AND s.run = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v))
ORDER BY s.key

-- name: next_owner
SELECT min(principal) FROM @conversation WHERE principal > :after AND principal < :until

-- ---------------------------------------------------------------- files

-- name: insert_files
INSERT INTO @file (id, principal, name, media_type, size, created_at, digest, blob, run)
SELECT * FROM :rows(text, text, text, text, bigint, bigint, text, text, bigint)
RETURNING key

-- name: insert_file_uses
INSERT INTO @file_use (file, conversation)
SELECT * FROM :rows(bigint, bigint) ON CONFLICT DO NOTHING

-- name: file_of_owner
SELECT key, id, name, media_type, size, created_at, digest, blob FROM @file WHERE id = :id AND principal = :principal

-- name: file_seen
SELECT f.key, f.id, f.name, f.media_type, f.size, f.created_at, f.digest, f.blob FROM @file AS f WHERE f.id = :id AND
    (f.principal = :principal OR (substr(f.principal, strpos(f.principal || chr(31), chr(31))) = :tenant AND EXISTS (
        SELECT 1 FROM @file_use AS u JOIN @conversation AS c ON c.key = u.conversation
        WHERE u.file = f.key AND c.agent = ANY(ARRAY(SELECT json_array_elements_text(:readable::json))) OFFSET 0)))

-- name: files_of_owner
SELECT f.key, f.id, f.name, f.media_type, f.size, f.created_at, f.digest, f.blob
FROM json_array_elements_text(:rows::json) AS j (id)
JOIN @file AS f ON f.id = j.id AND f.principal = :principal

-- name: files_to_use
SELECT f.key, f.id FROM @file AS f
WHERE f.id = ANY(ARRAY(SELECT json_array_elements_text(:rows::json))) AND f.principal = :principal
ORDER BY f.key FOR KEY SHARE

-- name: files_of_run
SELECT id FROM @file WHERE run = :run ORDER BY key

-- name: files_used_only_in
SELECT f.key, f.blob
FROM @file_use AS u
JOIN @file AS f ON f.key = u.file
WHERE u.conversation = :conversation
    AND NOT EXISTS (SELECT 1 FROM @file_use AS o WHERE o.file = u.file AND o.conversation <> :conversation)

-- name: erase_file_uses
DELETE FROM @file_use WHERE conversation = :conversation

-- name: delete_file_uses
DELETE FROM @file_use
WHERE file = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v))

-- name: delete_files
DELETE FROM @file WHERE key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v))

-- name: files_after
SELECT f.key, f.created_at, EXISTS (SELECT 1 FROM @file_use AS u WHERE u.file = f.key OFFSET 0)
FROM @file AS f WHERE f.key > :key ORDER BY f.key LIMIT :limit

-- name: lock_files
SELECT key FROM @file
WHERE key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v))
ORDER BY key FOR UPDATE SKIP LOCKED

-- name: files_unused
SELECT f.key, f.blob FROM json_array_elements_text(:rows::json) AS j (key) JOIN @file AS f ON f.key = j.key::bigint
WHERE f.created_at <= :before AND NOT EXISTS (SELECT 1 FROM @file_use AS u WHERE u.file = f.key)

-- name: blobs_with_owner
SELECT j.blob FROM json_array_elements_text(:rows::json) AS j (blob)
WHERE EXISTS (SELECT 1 FROM @file AS f WHERE f.blob = j.blob)

-- name: lock_files_of
SELECT key FROM @file WHERE key = ANY(ARRAY(SELECT file FROM @file_use WHERE conversation = :conversation))
ORDER BY key FOR UPDATE

-- name: begin_upload
INSERT INTO @upload (touched_at) VALUES ((extract(epoch FROM clock_timestamp()) * 1000)::bigint) RETURNING key

-- name: add_part
WITH u AS (
    UPDATE @upload SET touched_at = (extract(epoch FROM clock_timestamp()) * 1000)::bigint
    WHERE key = :upload AND blob IS NULL RETURNING key
)
INSERT INTO @upload_part (upload, start, bytes) SELECT key, :start::bigint, :bytes::bytea FROM u
ON CONFLICT (upload, start) DO UPDATE SET bytes = excluded.bytes
RETURNING start

-- name: name_upload
UPDATE @upload SET blob = :blob
WHERE key = :upload AND NOT EXISTS (SELECT 1 FROM @upload AS u WHERE u.blob = :blob)

-- name: named_upload
SELECT key FROM @upload WHERE blob = :blob

-- name: part_at
SELECT start, substr(bytes, (:start::bigint - start)::integer + 1, :length::integer) FROM @upload_part
WHERE upload = (SELECT key FROM @upload WHERE blob = :blob) AND start <= :start
ORDER BY start DESC LIMIT 1

-- name: uploads_without_owner
SELECT u.key FROM @upload AS u
WHERE u.blob = ANY(ARRAY(SELECT json_array_elements_text(:rows::json)))
    AND NOT EXISTS (SELECT 1 FROM @file AS f WHERE f.blob = u.blob)

-- name: unfinished_uploads
SELECT key FROM @upload WHERE blob IS NULL AND (touched_at <= :before OR key = :key)
ORDER BY key LIMIT 100 FOR UPDATE SKIP LOCKED

-- name: delete_parts
DELETE FROM @upload_part
WHERE upload = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v))

-- name: delete_uploads
DELETE FROM @upload WHERE key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v))

-- ---------------------------------------------------------------- handlers of events

-- name: insert_handlers
INSERT INTO @handler (name, position)
SELECT v, :position::bigint FROM json_array_elements_text(:rows::json) AS v ORDER BY v
ON CONFLICT (name) DO NOTHING

-- name: handlers_to_claim
-- A row that is locked is being moved by who has the handler.
SELECT key, name, worker, fence FROM @handler
WHERE name = ANY(ARRAY(SELECT json_array_elements_text(:rows::json)))
ORDER BY key FOR NO KEY UPDATE SKIP LOCKED

-- name: claim_handlers
UPDATE @handler SET worker = :worker, fence = fence + 1
WHERE key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v))

-- name: leased_handler
SELECT position FROM @handler WHERE key = :handler AND worker = :worker AND fence = :fence

-- name: handler_to_move
SELECT position FROM @handler WHERE key = :handler AND worker = :worker AND fence = :fence FOR NO KEY UPDATE

-- name: arrivals
SELECT key, conversation, seq FROM @event
WHERE key > :after AND key <= :read_to AND type = ANY(ARRAY(
    SELECT v::smallint FROM json_array_elements_text(:types::json) AS v)) AND hidden IS NULL
ORDER BY key

-- name: delivery
SELECT e.key, e.conversation, e.seq, e.run, r.id, e.type, e.turn, e.n, e.data, c.agent, c.id, e.hidden, e.source,
    r.principal, r.facts
FROM @event AS e
JOIN @run AS r ON r.key = e.run
JOIN @conversation AS c ON c.key = r.conversation
WHERE e.conversation = :conversation AND e.seq >= :seq AND e.key <= :until
    AND e.type = ANY(ARRAY(SELECT v::smallint FROM json_array_elements_text(:types::json) AS v)) AND e.hidden IS NULL
ORDER BY e.seq LIMIT 1

-- name: behind
SELECT conversation, seq, tries, again_at FROM @behind WHERE handler = :handler

-- name: fall_behind
INSERT INTO @behind (handler, conversation, seq, tries, again_at)
SELECT * FROM :rows(bigint, bigint, integer, integer, bigint)
ON CONFLICT (handler, conversation) DO UPDATE
SET seq = excluded.seq, tries = excluded.tries, again_at = excluded.again_at
WHERE excluded.seq >= @behind.seq

-- name: catch_up
DELETE FROM @behind WHERE handler = :handler AND conversation = :conversation AND seq <= :seq

-- name: move_handler
UPDATE @handler SET position = :position WHERE key = :handler AND position < :position

-- name: last_event_key
SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM @event_key_seq

-- name: committing_events
-- Who has inserted events, or is about to: a key is given after this lock was taken.
SELECT virtualtransaction FROM pg_locks
WHERE locktype = 'relation' AND relation = :events::regclass AND database = (
        SELECT oid FROM pg_database WHERE datname = current_database()
    ) AND mode = 'RowExclusiveLock' AND granted

-- ---------------------------------------------------------------- rows of runs

-- name: messages_of_runs
SELECT m.run, r.id, m.turn, m.id, m.text, m.status, m.files, m.created_at, m.kept
FROM json_array_elements_text(:rows::json) AS j (key)
JOIN @message AS m ON m.run = j.key::bigint
JOIN @run AS r ON r.key = m.run
ORDER BY m.run, m.turn

-- name: messages_of_turns
SELECT m.run, r.id, m.turn, m.id, m.text, m.status, m.files, m.created_at, m.kept
FROM json_array_elements(:rows::json) AS j (place)
JOIN @message AS m ON m.run = (j.place ->> 0)::bigint AND m.turn = (j.place ->> 1)::bigint
JOIN @run AS r ON r.key = m.run
ORDER BY m.run, m.turn

-- name: calls_of_turns
SELECT t.run, r.id, t.turn, t.n, t.tool, t.arguments, t.effect, t.status, t.tries, t.failures, t.result,
    a.approver, a.created_at, a.expires_at, a.decision, a.decided_by, a.reason, a.arguments,
    w.k, w.kind, w.name, w.schema, w.created_at, w.until, w.value, w.given_by
FROM json_array_elements(:rows::json) AS j (place)
JOIN @tool_call AS t ON t.run = (j.place ->> 0)::bigint AND t.turn = (j.place ->> 1)::bigint
JOIN @run AS r ON r.key = t.run
LEFT JOIN @approval AS a ON a.run = t.run AND a.turn = t.turn AND a.n = t.n
LEFT JOIN @wait AS w ON w.run = t.run AND w.turn = t.turn AND w.n = t.n AND w.k = t.waits
ORDER BY t.run, t.turn, t.n

-- name: calls_of_events
SELECT t.run, r.id, t.turn, t.n, t.tool, t.arguments, t.effect, t.status, t.tries, t.failures,
    CASE WHEN :results::boolean THEN t.result END,
    a.approver, a.created_at, a.expires_at, a.decision, a.decided_by, a.reason, a.arguments
FROM json_array_elements(:rows::json) AS j (place)
JOIN @tool_call AS t ON t.run = (j.place ->> 0)::bigint AND t.turn = (j.place ->> 1)::bigint
    AND t.n BETWEEN (j.place ->> 2)::bigint AND (j.place ->> 3)::bigint
JOIN @run AS r ON r.key = t.run
LEFT JOIN @approval AS a ON a.run = t.run AND a.turn = t.turn AND a.n = t.n
ORDER BY t.run, t.turn, t.n

-- name: waits_of_runs
SELECT w.run, w.turn, w.n, w.k, w.kind, w.name, w.schema, w.created_at, w.until, w.value, w.given_by
FROM json_array_elements_text(:rows::json) AS j (key)
JOIN @wait AS w ON w.run = j.key::bigint
ORDER BY w.run, w.turn, w.n, w.k

-- name: waits_at
SELECT w.run, w.turn, w.n, w.k, w.kind, w.name, w.schema, w.created_at, w.until, w.value, w.given_by
FROM json_array_elements(:rows::json) AS j (place)
JOIN @wait AS w ON w.run = (j.place ->> 0)::bigint AND w.turn = (j.place ->> 1)::integer
    AND w.n = (j.place ->> 2)::integer AND w.k = (j.place ->> 3)::integer

-- name: steps_of_runs
SELECT s.run, s.turn, s.n, s.name, s.value, s.failed
FROM json_array_elements_text(:rows::json) AS j (key)
JOIN @step AS s ON s.run = j.key::bigint
ORDER BY s.place

-- name: deltas_of_runs
SELECT e.run, e.data
FROM json_array_elements_text(:rows::json) AS j (key)
JOIN @event AS e ON e.run = j.key::bigint AND e.type = 4
ORDER BY e.run, e.seq

-- name: newest_summary
-- Of a run's thread: nothing in it where there is none, no row where there is no such run.
SELECT s.key, s.run, r.id, s.turn, s.text
FROM @run AS mine
LEFT JOIN LATERAL (
    SELECT n.key, n.run, n.turn, n.text FROM @summary AS n
    WHERE n.conversation = mine.conversation AND n.thread = CASE WHEN mine.root IS NULL THEN 0 ELSE mine.key END
    ORDER BY n.key DESC LIMIT 1
) AS s ON true
LEFT JOIN @run AS r ON r.key = s.run
WHERE mine.key = :run

-- name: earlier_messages
-- Of the runs before one, after a turn of one of them; a child run is the first of its thread.
SELECT m.run, r.id, m.turn, m.id, m.text, m.status, m.files, m.created_at, m.kept
FROM @run AS r JOIN @message AS m ON m.run = r.key
WHERE r.conversation = :conversation AND r.key >= :after_run AND r.key < :run
    AND (r.key > :after_run OR m.turn > :after_turn::integer)
    AND r.root IS NULL AND (SELECT root FROM @run WHERE key = :run) IS NULL
ORDER BY m.run, m.turn

-- ---------------------------------------------------------------- reads for the outside

-- name: find_run
SELECT r.key FROM @run AS r JOIN @conversation AS c ON c.key = r.conversation
WHERE r.id = :id AND r.principal = :principal AND (:agent::text IS NULL OR coalesce(r.agent, c.agent) = :agent)

-- name: run_view
SELECT r.key, r.id, coalesce(r.agent, c.agent), c.id, r.principal, r.facts, r.status, r.ended_seq, r.waits, r.attempt, r.requests,
    r.input_tokens, r.output_tokens, r.cached_tokens, r.written_tokens, r.cost, r.error, r.result,
    r.created_at, r.updated_at, r.status_at,
    CASE WHEN r.status <> 'completed' THEN NULL
        WHEN c.agent LIKE 'tool:%' THEN
            (SELECT t.result FROM @tool_call AS t WHERE t.run = r.key AND t.turn = 1 AND t.n = 0)
        ELSE (SELECT m.text FROM @message AS m WHERE m.run = r.key ORDER BY m.turn DESC LIMIT 1)
    END,
    coalesce(r.root, (SELECT r.key FROM @run AS child WHERE child.root = r.key LIMIT 1))
FROM @run AS r JOIN @conversation AS c ON c.key = r.conversation
WHERE r.id = :id AND (:agent::text IS NULL OR coalesce(r.agent, c.agent) = :agent) AND
    (r.principal = :principal OR (c.agent = ANY(ARRAY(SELECT json_array_elements_text(:readable::json)))
        AND substr(r.principal, strpos(r.principal || chr(31), chr(31))) = :tenant))

-- name: run_views
SELECT r.key, r.id, coalesce(r.agent, c.agent), c.id, r.principal, r.facts, r.status, r.ended_seq, r.waits, r.attempt, r.requests,
    r.input_tokens, r.output_tokens, r.cached_tokens, r.written_tokens, r.cost, r.error, r.result,
    r.created_at, r.updated_at, r.status_at,
    CASE WHEN r.status <> 'completed' THEN NULL
        WHEN c.agent LIKE 'tool:%' THEN
            (SELECT t.result FROM @tool_call AS t WHERE t.run = r.key AND t.turn = 1 AND t.n = 0)
        ELSE (SELECT m.text FROM @message AS m WHERE m.run = r.key ORDER BY m.turn DESC LIMIT 1)
    END,
    coalesce(r.root, (SELECT r.key FROM @run AS child WHERE child.root = r.key LIMIT 1))
FROM json_array_elements_text(:rows::json) AS j (key)
JOIN @run AS r ON r.key = j.key::bigint
JOIN @conversation AS c ON c.key = r.conversation

-- name: runs_of_trees
-- Whole trees by the keys of their roots.
SELECT r.key, r.parent, r.id, r.agent, r.status IN ('queued', 'running', 'waiting'),
    r.requests, r.input_tokens, r.output_tokens, r.cached_tokens, r.written_tokens, r.cost
FROM @run AS r WHERE r.key = ANY(ARRAY(
    SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v
    UNION ALL
    SELECT child.key FROM json_array_elements_text(:rows::json) AS v JOIN @run AS child ON child.root = v::bigint
))
ORDER BY r.key

-- name: root_of_run
SELECT coalesce(root, key) FROM @run WHERE key = :run

-- name: open_approvals_of_runs
SELECT a.run, a.turn, a.n, t.tool, t.arguments, a.expires_at
FROM json_array_elements_text(:rows::json) AS j (key)
JOIN @approval AS a ON a.run = j.key::bigint AND a.decision IS NULL
JOIN @tool_call AS t ON t.run = a.run AND t.turn = a.turn AND t.n = a.n AND t.status = 'open'
ORDER BY a.run, a.turn, a.n

-- name: open_waits_of_runs
SELECT t.run, t.turn, t.n, t.tool, t.arguments,
    w.k, w.kind, w.name, w.schema, w.created_at, w.until, w.value, w.given_by
FROM json_array_elements_text(:rows::json) AS j (key)
JOIN @tool_call AS t ON t.run = j.key::bigint AND t.waits IS NOT NULL AND t.status = 'started'
JOIN @wait AS w ON w.run = t.run AND w.turn = t.turn AND w.n = t.n AND w.k = t.waits AND w.value IS NULL
ORDER BY t.run, t.turn, t.n

-- name: list_runs
SELECT r.key FROM @run AS r JOIN @conversation AS c ON c.key = r.conversation
WHERE r.principal = :principal AND r.key < :before AND r.root IS NULL AND (:agent::text IS NULL OR c.agent = :agent)
ORDER BY r.key DESC LIMIT :limit

-- name: list_tasks
SELECT r.key, r.status_at FROM @run AS r
WHERE r.principal = :principal AND r.status_at >= :since AND (r.status_at, r.key) < (:status_at::bigint, :before::bigint)
    AND (:statuses::text = '[]' OR r.status = ANY(ARRAY(SELECT json_array_elements_text(:statuses::json))))
    AND (:asking::boolean IS NULL OR r.status <> 'waiting' OR :asking::boolean
        = (r.key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:asking_ones::json) AS v))))
    AND (:begun::boolean IS NULL OR r.status <> 'queued' OR (r.attempt > 0) = :begun::boolean)
ORDER BY r.status_at DESC, r.key DESC LIMIT :limit

-- name: count_tasks
SELECT count(*) FROM @run AS r
WHERE r.principal = :principal AND r.status_at >= :since
    AND (:statuses::text = '[]' OR r.status = ANY(ARRAY(SELECT json_array_elements_text(:statuses::json))))
    AND (:asking::boolean IS NULL OR r.status <> 'waiting' OR :asking::boolean
        = (r.key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:asking_ones::json) AS v))))
    AND (:begun::boolean IS NULL OR r.status <> 'queued' OR (r.attempt > 0) = :begun::boolean)

-- name: tasks_of_conversation
SELECT r.key, r.status_at FROM @conversation AS c JOIN @run AS r ON r.conversation = c.key
WHERE c.id = :conversation AND r.principal = :principal AND r.status_at >= :since
    AND (:statuses::text = '[]' OR r.status = ANY(ARRAY(SELECT json_array_elements_text(:statuses::json))))
    AND (:asking::boolean IS NULL OR r.status <> 'waiting' OR :asking::boolean
        = (r.key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:asking_ones::json) AS v))))
    AND (:begun::boolean IS NULL OR r.status <> 'queued' OR (r.attempt > 0) = :begun::boolean)
ORDER BY r.status_at DESC, r.key DESC

-- name: waiting_before
-- Of a run's conversation, what waits before it.
SELECT r.key FROM @run AS mine JOIN @run AS r ON r.conversation = mine.conversation
WHERE mine.key = :run AND r.key < mine.key AND r.root IS NULL AND r.status = 'waiting' ORDER BY r.key

-- name: tasks_that_ask
-- Of the tasks that wait, those of which a call waits for a decision or an answer, or one of a run below them does.
SELECT r.key FROM @run AS r
WHERE r.principal = :principal AND r.status_at >= :since AND r.status = 'waiting' AND (
    EXISTS (
        SELECT 1 FROM @approval AS a JOIN @tool_call AS t ON t.run = a.run AND t.turn = a.turn AND t.n = a.n
        WHERE a.run = r.key AND a.decision IS NULL AND t.status = 'open' OFFSET 0
    ) OR EXISTS (
        SELECT 1 FROM @tool_call AS t
        JOIN @wait AS w ON w.run = t.run AND w.turn = t.turn AND w.n = t.n AND w.k = t.waits
        WHERE t.run = r.key AND t.waits IS NOT NULL AND t.status = 'started'
            AND w.kind = 'question' AND w.value IS NULL OFFSET 0
    ) OR EXISTS (
        SELECT 1 FROM @run AS child
        JOIN @approval AS a ON a.run = child.key
        JOIN @tool_call AS t ON t.run = a.run AND t.turn = a.turn AND t.n = a.n
        WHERE child.root = r.key AND child.status IN ('queued', 'running', 'waiting')
            AND a.decision IS NULL AND t.status = 'open' OFFSET 0
    ) OR EXISTS (
        SELECT 1 FROM @run AS child
        JOIN @tool_call AS t ON t.run = child.key AND t.waits IS NOT NULL
        JOIN @wait AS w ON w.run = t.run AND w.turn = t.turn AND w.n = t.n AND w.k = t.waits
        WHERE child.root = r.key AND child.status IN ('queued', 'running', 'waiting') AND t.status = 'started'
            AND w.kind = 'question' AND w.value IS NULL OFFSET 0
    )
)

-- name: list_approvals
SELECT a.run, a.turn, a.n, coalesce(root.id, r.id), c.agent, c.id, r.principal, r.facts
FROM @approval AS a
JOIN @tool_call AS t ON t.run = a.run AND t.turn = a.turn AND t.n = a.n AND t.status = 'open'
JOIN @run AS r ON r.key = a.run
JOIN @conversation AS c ON c.key = r.conversation
LEFT JOIN @run AS root ON root.key = r.root
WHERE a.approver = :approver AND a.whose = :whose AND (a.run, a.turn, a.n) > (:run, :turn::bigint, :n::bigint)
    AND (a.expires_at IS NULL OR a.expires_at > :now)
ORDER BY a.run, a.turn, a.n LIMIT :limit

-- name: list_conversations
SELECT key, id, agent, title, created_at, updated_at FROM @conversation
WHERE principal = :principal AND key < :before AND (:agent::text IS NULL OR agent = :agent)
ORDER BY key DESC LIMIT :limit

-- name: find_conversation
SELECT key, id, agent, title, created_at, updated_at, last_seq FROM @conversation
WHERE id = :id AND (:agent::text IS NULL OR agent = :agent) AND
    (principal = :principal OR (agent = ANY(ARRAY(SELECT json_array_elements_text(:readable::json)))
        AND substr(principal, strpos(principal || chr(31), chr(31))) = :tenant))

-- name: first_delta
SELECT min(e.seq) FROM @run AS r JOIN @event AS e ON e.run = r.key AND e.type = 4
WHERE r.conversation = :conversation AND r.status IN ('queued', 'running', 'waiting') AND r.root IS NULL

-- name: messages_told_later
SELECT run, turn FROM @event WHERE conversation = :conversation AND seq > :seq::bigint AND type = 5 AND hidden IS NULL

-- name: newest_messages
SELECT m.run, m.turn FROM @run AS r JOIN @message AS m ON m.run = r.key
WHERE r.conversation = :conversation AND r.key <= :run AND r.root IS NULL
    AND (r.key < :run OR m.turn < :turn::bigint)
ORDER BY r.key DESC, m.turn DESC LIMIT :limit

-- name: log_of_run
SELECT r.key, r.conversation, r.first_seq, c.last_seq, r.ended_seq, c.id
FROM @run AS r JOIN @conversation AS c ON c.key = r.conversation
WHERE r.id = :id AND (:agent::text IS NULL OR coalesce(r.agent, c.agent) = :agent) AND
    (r.principal = :principal OR (c.agent = ANY(ARRAY(SELECT json_array_elements_text(:readable::json)))
        AND substr(r.principal, strpos(r.principal || chr(31), chr(31))) = :tenant))

-- name: log_of_conversation
SELECT c.key, c.last_seq,
    (SELECT r.first_seq FROM @run AS r WHERE r.conversation = c.key AND r.root IS NULL ORDER BY r.key DESC LIMIT 1)
FROM @conversation AS c
WHERE c.id = :id AND (:agent::text IS NULL OR c.agent = :agent) AND
    (c.principal = :principal OR (c.agent = ANY(ARRAY(SELECT json_array_elements_text(:readable::json)))
        AND substr(c.principal, strpos(c.principal || chr(31), chr(31))) = :tenant))

-- name: log_after
SELECT e.key, e.conversation, e.seq, e.run, r.id, e.type, e.turn, e.n, e.data, c.agent, c.id, e.hidden, e.source
FROM @event AS e JOIN @run AS r ON r.key = e.run JOIN @conversation AS c ON c.key = e.conversation
WHERE e.conversation = :conversation AND e.seq > :after::bigint AND e.hidden IS NULL
ORDER BY e.seq LIMIT :limit

-- name: log_of_run_after
SELECT e.key, e.conversation, e.seq, e.run, r.id, e.type, e.turn, e.n, e.data, coalesce(r.agent, c.agent), c.id,
    e.hidden, e.source
FROM @run AS r
JOIN @event AS e ON e.conversation = r.conversation AND e.run = r.key AND e.seq >= r.first_seq
    AND e.seq <= coalesce(r.ended_seq, 2147483647)
JOIN @conversation AS c ON c.key = r.conversation
WHERE r.key = :run AND e.conversation = :conversation AND e.seq > :after::bigint
ORDER BY e.seq LIMIT :limit

-- name: events_between
-- Of some conversations, each from a number to a number; of types, unless these are NULL.
SELECT e.key, e.conversation, e.seq, e.run, coalesce(r.id, x.id), e.type, e.turn, e.n, e.data,
    coalesce(r.agent, c.agent), c.id, e.hidden, e.source
FROM json_array_elements(:rows::json) AS j (range)
JOIN @event AS e ON e.conversation = (j.range ->> 0)::bigint
    AND e.seq BETWEEN (j.range ->> 1)::integer AND (j.range ->> 2)::integer
LEFT JOIN @run AS r ON r.key = e.run
LEFT JOIN @conversation AS c ON c.key = e.conversation
LEFT JOIN @erased_run AS x ON x.run = e.run
WHERE (:types::json IS NULL OR e.type = ANY(ARRAY(SELECT v::smallint FROM json_array_elements_text(:types::json) AS v)))
    AND (r.id IS NOT NULL OR x.id IS NOT NULL)
ORDER BY e.conversation, e.seq

-- name: last_seqs
SELECT key, last_seq FROM @conversation
WHERE key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v))

-- ---------------------------------------------------------------- reads over all principals

-- name: run_owner
SELECT principal, facts FROM @run WHERE id = :id

-- name: find_runs
-- Of so many runs before a place, those that fit; the last row says where the next ones begin, and how many there were.
WITH w AS MATERIALIZED (
    SELECT key, conversation, status FROM @run WHERE key < :before AND root IS NULL ORDER BY key DESC LIMIT :looked_at
)
(
    SELECT w.key, 0 FROM w JOIN @conversation AS c ON c.key = w.conversation
    WHERE (:status::text IS NULL OR w.status = :status) AND (:agent::text IS NULL OR c.agent = :agent)
    ORDER BY w.key DESC LIMIT :limit
)
UNION ALL SELECT min(key), count(*) FROM w

-- name: find_runs_of_principal
-- The keys of an id in whatever tenant lie between it and it with a space; `until` may also end behind one key.
WITH w AS MATERIALIZED (
    SELECT key, conversation, status FROM @run WHERE principal >= :principal AND principal < :until
        AND key < :before AND root IS NULL
    ORDER BY key DESC LIMIT :looked_at
)
(
    SELECT w.key, 0 FROM w JOIN @conversation AS c ON c.key = w.conversation
    WHERE (:status::text IS NULL OR w.status = :status) AND (:agent::text IS NULL OR c.agent = :agent)
    ORDER BY w.key DESC LIMIT :limit
)
UNION ALL SELECT min(key), count(*) FROM w

-- name: find_runs_that_ended_badly
WITH w AS MATERIALIZED (
    SELECT key, conversation FROM @run
    WHERE status IN ('failed', 'cancelled') AND status = :status AND key < :before AND root IS NULL
    ORDER BY key DESC LIMIT :looked_at
)
(
    SELECT w.key, 0 FROM w JOIN @conversation AS c ON c.key = w.conversation
    WHERE :agent::text IS NULL OR c.agent = :agent
    ORDER BY w.key DESC LIMIT :limit
)
UNION ALL SELECT min(key), count(*) FROM w

-- name: find_open_runs
WITH w AS MATERIALIZED (
    SELECT key, conversation FROM @run
    WHERE status IN ('queued', 'running', 'waiting') AND status = :status AND key < :before AND root IS NULL
    ORDER BY key DESC LIMIT :looked_at
)
(
    SELECT w.key, 0 FROM w JOIN @conversation AS c ON c.key = w.conversation
    WHERE :agent::text IS NULL OR c.agent = :agent
    ORDER BY w.key DESC LIMIT :limit
)
UNION ALL SELECT min(key), count(*) FROM w

-- name: open_approvals
SELECT a.run, a.turn, a.n, coalesce(root.id, r.id), c.agent, c.id, r.principal, r.facts
FROM @approval AS a
JOIN @tool_call AS t ON t.run = a.run AND t.turn = a.turn AND t.n = a.n AND t.status = 'open'
JOIN @run AS r ON r.key = a.run
JOIN @conversation AS c ON c.key = r.conversation
LEFT JOIN @run AS root ON root.key = r.root
WHERE a.whose IS NOT NULL AND (a.run, a.turn, a.n) > (:run, :turn, :n)
    AND a.decision IS NULL AND (a.expires_at IS NULL OR a.expires_at > :now)
ORDER BY a.run, a.turn, a.n LIMIT :limit

-- name: backlog
SELECT (SELECT count(*) FROM (SELECT 1 FROM @run
        WHERE status = 'queued' AND wake_at IS NOT NULL LIMIT :limit) AS queued),
    (SELECT count(*) FROM (SELECT 1 FROM @run WHERE status = 'running' LIMIT :limit) AS running),
    (SELECT count(*) FROM (SELECT 1 FROM @approval
        WHERE whose IS NOT NULL AND decision IS NULL AND (expires_at IS NULL OR expires_at > :now)
        LIMIT :limit) AS approvals)

-- name: insert_secret
INSERT INTO @secret (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING

-- name: secret
SELECT value FROM @secret WHERE name = :name

-- name: count_open_runs
-- Without those that other runs asked for.
SELECT (SELECT count(*) FROM @run WHERE status IN ('queued', 'running', 'waiting'))
    - (SELECT count(*) FROM @run WHERE status IN ('queued', 'running', 'waiting') AND root IS NOT NULL)

-- ---------------------------------------------------------------- steps of an app's own transaction

-- name: commit_step
WITH leased AS (
    UPDATE @run
    SET crashes = 0, updated_at = coalesce(:now::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
    WHERE key = :run AND status = 'running' AND worker = :worker AND fence = :fence
    RETURNING key
)
INSERT INTO @step (run, turn, n, name, value, failed)
SELECT key, :turn::integer, :n::integer, :name::text, :value::text, :failed::boolean FROM leased
ON CONFLICT (run, turn, n, name) DO NOTHING
RETURNING place

-- name: recorded_step
SELECT value, failed FROM @step WHERE run = :run AND turn = :turn AND n = :n AND name = :name

-- ---------------------------------------------------------------- records

-- name: keep_record
INSERT INTO @record (kind, key, family, content, expires_at)
VALUES (:kind::text, :key::text, :family::text, :content::text, :expires_at::bigint)
ON CONFLICT (kind, key) DO UPDATE
SET family = excluded.family, content = excluded.content, expires_at = excluded.expires_at, taken_by = NULL

-- name: find_record
SELECT kind, key, family, content, expires_at FROM @record
WHERE kind = :kind AND key = :key AND taken_by IS NULL AND (expires_at IS NULL OR expires_at > :now)

-- name: find_records
SELECT kind, key, family, content, expires_at FROM @record
WHERE kind = :kind AND family = :family AND taken_by IS NULL AND (expires_at IS NULL OR expires_at > :now)
ORDER BY key LIMIT :limit

-- name: take_record
UPDATE @record SET taken_by = :taken_by, content = '', expires_at = least(expires_at, :gone_at::bigint)
WHERE kind = :kind AND key = :key AND taken_by IS NULL
RETURNING 1

-- name: taken_record
SELECT 1 FROM @record WHERE kind = :kind AND key = :key AND taken_by = :taken_by

-- name: forget_records
WITH mine AS MATERIALIZED (
    SELECT kind, key FROM @record WHERE kind = :kind AND family = :family ORDER BY key FOR UPDATE
)
DELETE FROM @record AS r USING mine WHERE r.kind = mine.kind AND r.key = mine.key
RETURNING r.expires_at, r.taken_by

-- name: expired_records
SELECT 1 FROM @record WHERE expires_at <= :now LIMIT 1

-- name: sweep_records
WITH mine AS MATERIALIZED (
    SELECT kind, key FROM @record WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit FOR UPDATE SKIP LOCKED
)
DELETE FROM @record AS r USING mine WHERE r.kind = mine.kind AND r.key = mine.key
RETURNING 1

-- ---------------------------------------------------------------- webhooks

-- name: ids_of_webhooks
SELECT id FROM @webhook WHERE run = :run

-- name: keep_webhook
INSERT INTO @webhook AS h (run, id, content, due_at, created_at)
VALUES (:run::bigint, :id::text, :content::text, :now::bigint, :now::bigint)
ON CONFLICT (run, id) DO UPDATE
SET content = excluded.content, due_at = excluded.due_at, created_at = excluded.created_at,
    delivered = 0, failures = 0, fence = h.fence + 1, over_at = NULL, holder = NULL

-- name: find_webhook
SELECT key, id, content, delivered, failures, over_at IS NOT NULL, created_at FROM @webhook
WHERE run = :run AND id = :id

-- name: list_webhooks
SELECT key, id, content, delivered, failures, over_at IS NOT NULL, created_at FROM @webhook
WHERE run = :run AND key > :after
ORDER BY key LIMIT :limit

-- name: drop_webhook
DELETE FROM @webhook WHERE run = :run AND id = :id

-- name: drop_webhooks
DELETE FROM @webhook WHERE key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v))

-- name: due_webhooks
-- The second part is due because the calendar was set back: nothing is held, or put off, for so long.
SELECT * FROM (
    (SELECT key, due_at FROM @webhook WHERE due_at <= :now ORDER BY due_at, key LIMIT :limit)
    UNION ALL
    (SELECT key, due_at FROM @webhook WHERE due_at > :latest ORDER BY due_at, key LIMIT :limit)
) AS due
ORDER BY 2, 1 LIMIT :limit

-- name: claim_webhooks
-- Nobody is waited for: what another one holds at this moment is not due any more. IS TRUE keeps it from the index of all
-- that is due, which is longer than the few keys.
WITH mine AS MATERIALIZED (
    SELECT key FROM @webhook
    WHERE key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v))
        AND (due_at <= :now OR due_at > :latest) IS TRUE
    ORDER BY key FOR UPDATE SKIP LOCKED
)
UPDATE @webhook AS h SET holder = :holder::text, due_at = :until::bigint, fence = h.fence + 1
FROM mine WHERE h.key = mine.key
RETURNING h.key

-- name: webhooks_held
SELECT h.key, h.id, h.content, h.delivered, h.failures, h.over_at IS NOT NULL, h.created_at,
    h.fence, r.id, r.principal, r.facts
FROM json_array_elements_text(:rows::json) WITH ORDINALITY AS j (key, place)
JOIN @webhook AS h ON h.key = j.key::bigint AND (h.holder = :holder) IS TRUE
JOIN @run AS r ON r.key = h.run
ORDER BY j.place

-- name: renew_webhooks
UPDATE @webhook SET due_at = :until
WHERE key = ANY(ARRAY(
        SELECT key FROM @webhook
        WHERE holder = :holder AND (:some::json IS NULL
            OR key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:some::json) AS v)))
        ORDER BY key FOR UPDATE
    ))
    AND holder = :holder
RETURNING key

-- name: note_delivery
UPDATE @webhook
SET delivered = greatest(delivered, :cursor::integer), failures = 0,
    over_at = CASE WHEN :over::boolean THEN coalesce(over_at, :now::bigint) END,
    due_at = CASE WHEN :over::boolean THEN NULL ELSE due_at END,
    holder = CASE WHEN :over::boolean THEN NULL ELSE holder END
WHERE key = :key AND fence = :fence AND (holder IS NOT NULL OR (:over::boolean AND over_at IS NOT NULL))
RETURNING key

-- name: put_off_webhook
UPDATE @webhook
SET failures = failures + CASE WHEN holder IS NULL THEN 0 ELSE 1 END,
    over_at = CASE WHEN :over::boolean THEN coalesce(over_at, :now::bigint) END,
    due_at = CASE WHEN :over::boolean THEN NULL ELSE :due_at::bigint END,
    holder = NULL
WHERE key = :key AND fence = :fence AND (holder IS NOT NULL
    OR (:over::boolean AND over_at IS NOT NULL) OR (NOT :over::boolean AND due_at = :due_at::bigint))
RETURNING key

-- name: release_webhooks
UPDATE @webhook SET holder = NULL, due_at = :now::bigint, fence = fence + 1
WHERE key = ANY(ARRAY(SELECT key FROM @webhook WHERE holder = :holder ORDER BY key FOR UPDATE)) AND holder = :holder

-- name: webhooks_to_sweep
SELECT 1 FROM @webhook WHERE over_at <= :before LIMIT 1

-- name: sweep_webhooks
WITH mine AS MATERIALIZED (
    SELECT key FROM @webhook WHERE over_at <= :before ORDER BY over_at LIMIT :limit FOR UPDATE SKIP LOCKED
)
DELETE FROM @webhook AS h USING mine WHERE h.key = mine.key
RETURNING 1


-- ---------------------------------------------------------------- passages

-- name: find_space
SELECT key, version FROM @passage_space WHERE name = :name

-- name: make_space
INSERT INTO @passage_space (name) VALUES (:name::text) ON CONFLICT (name) DO NOTHING

-- name: touch_spaces
UPDATE @passage_space SET version = version + 1 WHERE key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v))

-- name: drop_empty_spaces
DELETE FROM @passage_space AS s
WHERE s.key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v))
    AND NOT EXISTS (SELECT 1 FROM @passage AS p WHERE p.space = s.key OFFSET 0)
    AND NOT EXISTS (SELECT 1 FROM @passage_source AS o WHERE o.space = s.key OFFSET 0)

-- name: count_passages
SELECT count(*) FROM (SELECT 1 FROM @passage WHERE space = :space LIMIT :limit) AS few

-- name: passages_named
SELECT p.key, p.id, p.name, p.text, p.digest, p.version
FROM json_array_elements_text(:rows::json) AS j (name)
JOIN @passage AS p ON p.space = :space AND md5(p.name) = md5(j.name) AND p.name = j.name

-- name: passages_with_ids
SELECT p.key, p.id
FROM json_array_elements_text(:rows::json) AS j (id) JOIN @passage AS p ON p.space = :space AND p.id = j.id

-- name: insert_passages
INSERT INTO @passage (space, id, name, source, text, metadata, digest, created_at, updated_at)
SELECT * FROM :rows(bigint, text, text, text, text, text, text, bigint, bigint)
RETURNING key

-- name: update_passages
UPDATE @passage AS p
SET source = j.source, text = j.text, metadata = j.metadata, digest = j.digest, version = j.version, updated_at = j.now
FROM :rows(bigint, text, text, text, text, integer, bigint) AS j (key, source, text, metadata, digest, version, now)
WHERE p.key = j.key

-- name: keep_words
INSERT INTO @passage_words (passage, space, words)
SELECT passage, space, array_to_tsvector(string_to_array(words, ' ') || ('@' || space))
FROM :rows(bigint, bigint, text) AS j (passage, space, words)

-- name: drop_words
DELETE FROM @passage_words WHERE passage = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v))

-- name: keep_vector
INSERT INTO @passage_vector (passage, space, embedder, vector)
VALUES (:passage::bigint, :space::bigint, :embedder::text, :vector::real[])
ON CONFLICT (passage, embedder) DO UPDATE SET vector = excluded.vector

-- name: drop_vectors_of
DELETE FROM @passage_vector WHERE passage = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v))

-- name: settle_embedders
UPDATE @passage AS p SET embedder = coalesce(
    (SELECT v.embedder FROM @passage_vector AS v WHERE v.passage = p.key AND v.embedder = :embedder),
    (SELECT v.embedder FROM @passage_vector AS v WHERE v.passage = p.key LIMIT 1)
)
WHERE p.key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v))

-- name: passages
SELECT p.key, p.id, p.name, p.text, p.metadata, p.source, p.created_at, p.updated_at FROM @passage AS p
WHERE p.key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v)) AND (p.space = :space) IS TRUE

-- name: list_passages
SELECT key, id, name, text, metadata, source, created_at, updated_at FROM @passage
WHERE space = :space AND (updated_at, key) < (:updated_at, :key)
ORDER BY updated_at DESC, key DESC LIMIT :limit

-- name: some_passages
SELECT key FROM @passage WHERE space = :space ORDER BY updated_at LIMIT :limit

-- name: passages_of_source
SELECT key, name FROM @passage WHERE space = :space AND md5(source) = md5(:source::text) AND source = :source::text

-- name: delete_passages
DELETE FROM @passage WHERE key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v))

-- name: keep_source
INSERT INTO @passage_source (space, source, digest) VALUES (:space::bigint, :source::text, :digest::text)
ON CONFLICT (space, md5(source)) DO UPDATE SET digest = excluded.digest

-- name: drop_source
DELETE FROM @passage_source WHERE space = :space AND md5(source) = md5(:source::text)

-- name: unsettle_sources
UPDATE @passage_source SET digest = '' WHERE space = :space

-- name: drop_sources
DELETE FROM @passage_source WHERE space = :space

-- name: sources
SELECT source, digest FROM @passage_source WHERE space = :space ORDER BY source

-- name: passages_by_words
-- A word counts for less the more passages of the space have it (the BM25 family's idf). What more than a thousand have
-- tells next to nothing, so no more are read of any word.
WITH of_word AS MATERIALIZED (
    SELECT hit.passages,
        ln(1 + (greatest(known.total, hit.number) - hit.number + 0.5)::float8 / (hit.number + 0.5)::float8) AS weight
    FROM (SELECT count(*) AS total FROM (SELECT 1 FROM @passage WHERE space = :space LIMIT 1000) AS few) AS known
    CROSS JOIN json_array_elements_text(:words::json) AS j (word)
    CROSS JOIN LATERAL (
        SELECT array_agg(found.passage) AS passages, count(*) AS number FROM (
            SELECT w.passage FROM @passage_words AS w
            WHERE w.words @@ ('''@' || :space::bigint || ''' & ''' || j.word
                    || CASE WHEN length(j.word) >= :begins::integer THEN ''':*' ELSE '''' END)::tsquery
                AND w.space = :space::bigint
            LIMIT 1000
        ) AS found
    ) AS hit
)
SELECT passage FROM of_word CROSS JOIN LATERAL unnest(passages) AS passage
GROUP BY passage
ORDER BY sum(weight) DESC, passage DESC LIMIT :limit

-- name: count_vectors
SELECT count(*) FROM (SELECT 1 FROM @passage_vector WHERE space = :space AND embedder = :embedder LIMIT :limit) AS few

-- name: vector_size
SELECT cardinality(vector) FROM @passage_vector WHERE embedder = :embedder LIMIT 1

-- name: never_embedded
SELECT key, version, text FROM @passage WHERE embedder IS NULL ORDER BY key LIMIT :limit

-- name: embedded_by_others
SELECT * FROM (
    (SELECT p.key, p.version, p.text FROM @passage AS p
    WHERE p.embedder < :embedder
        AND NOT EXISTS (SELECT 1 FROM @passage_vector AS v WHERE v.passage = p.key AND v.embedder = :embedder OFFSET 0)
    ORDER BY p.embedder, p.key LIMIT :limit)
    UNION ALL
    (SELECT p.key, p.version, p.text FROM @passage AS p
    WHERE p.embedder > :embedder
        AND NOT EXISTS (SELECT 1 FROM @passage_vector AS v WHERE v.passage = p.key AND v.embedder = :embedder OFFSET 0)
    ORDER BY p.embedder, p.key LIMIT :limit)
) AS few
LIMIT :limit

-- name: places_of_passages
SELECT p.key, p.version, p.space, s.name
FROM @passage AS p JOIN @passage_space AS s ON s.key = p.space
WHERE p.key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v))

-- name: vectors_of_others
SELECT * FROM (
    (SELECT v.key, v.passage, v.space, s.name FROM @passage_vector AS v JOIN @passage_space AS s ON s.key = v.space
    WHERE v.embedder < :embedder ORDER BY v.embedder, v.key LIMIT :limit)
    UNION ALL
    (SELECT v.key, v.passage, v.space, s.name FROM @passage_vector AS v JOIN @passage_space AS s ON s.key = v.space
    WHERE v.embedder > :embedder ORDER BY v.embedder, v.key LIMIT :limit)
) AS few
LIMIT :limit

-- name: drop_vectors
DELETE FROM @passage_vector WHERE key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v))

-- name: old_memories
SELECT p.key, p.space, s.name FROM @passage AS p JOIN @passage_space AS s ON s.key = p.space
WHERE p.source IS NULL AND p.updated_at < :before AND s.name >= 'principal:' AND s.name < 'principal;'
ORDER BY p.updated_at, p.key LIMIT :limit

-- name: still_old
SELECT key FROM @passage WHERE key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v)) AND (updated_at < :before) IS TRUE
