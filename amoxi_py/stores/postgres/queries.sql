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
INSERT INTO @worker (id, expires_at) VALUES (:id, :expires_at)
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
ORDER BY key LIMIT :limit

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
SELECT r.key
FROM @run AS r
WHERE r.key = ANY(ARRAY(
        SELECT key FROM @run WHERE id = ANY(ARRAY(SELECT json_array_elements_text(:runs::json)))
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
    updated_at = :now
WHERE key = ANY(ARRAY(SELECT v::bigint FROM json_array_elements_text(:rows::json) AS v))

-- name: leased_runs
SELECT r.key, r.id, r.conversation, r.worker, r.fence, c.agent, c.id, r.principal, r.facts, r.attempt, r.crashes,
    r.changes, r.model_failures, r.requests, r.input_tokens, r.output_tokens, r.instructions, c.last_seq
FROM json_array_elements_text(:rows::json) WITH ORDINALITY AS j (key, place)
JOIN @run AS r ON r.key = j.key::bigint
JOIN @conversation AS c ON c.key = r.conversation
ORDER BY j.place

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

-- ---------------------------------------------------------------- submitting

-- name: known_submissions
SELECT j.place - 1
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
SELECT key, created_at FROM @idempotency_key ORDER BY key LIMIT 2 FOR UPDATE SKIP LOCKED

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
SELECT r.key,
    EXISTS (
        SELECT 1 FROM @approval AS a JOIN @tool_call AS t ON t.run = a.run AND t.turn = a.turn AND t.n = a.n
        WHERE a.run = r.key AND a.decision IS NULL AND a.approver <> 'owner' AND t.status = 'open' OFFSET 0
    )
FROM @run AS r
WHERE r.conversation = :conversation AND r.status IN ('queued', 'running', 'waiting') ORDER BY r.key

-- name: insert_runs
INSERT INTO @run (id, conversation, principal, facts, status, wake_at, worker, fence, attempt, first_seq,
    created_at, updated_at)
SELECT * FROM :rows(text, bigint, text, text, text, bigint, bigint, integer, integer, integer, bigint, bigint)
RETURNING key

-- ---------------------------------------------------------------- a worker's changes

-- name: runs_to_change
SELECT r.key, r.status, r.worker, r.fence, r.changes, c.last_seq,
    EXISTS (SELECT 1 FROM @event AS e WHERE e.run = r.key AND e.type = 4 OFFSET 0)
FROM json_array_elements_text(:rows::json) AS j (key)
JOIN @run AS r ON r.key = j.key::bigint
JOIN @conversation AS c ON c.key = r.conversation

-- name: calls_decided_by_people
SELECT a.run, a.turn, a.n
FROM json_array_elements(:rows::json) AS j (place)
JOIN @approval AS a ON a.run = (j.place ->> 0)::bigint AND a.turn = (j.place ->> 1)::integer
    AND a.n = (j.place ->> 2)::integer
WHERE a.decision <> 'expire'

-- name: insert_messages
INSERT INTO @message (run, turn, id, text, status, files, created_at)
SELECT * FROM :rows(bigint, integer, text, text, text, text, bigint)

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
    updated_at = j.now
FROM :rows(bigint, integer, integer, integer, bigint, bigint, bigint, bigint)
    AS j (run, changes, progress, model_failures, requests, input_tokens, output_tokens, now)
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
    updated_at = j.now,
    status = j.status,
    ended_seq = j.ended_seq,
    error = j.error,
    result = j.result
FROM :rows(bigint, integer, integer, integer, bigint, bigint, bigint, bigint, text, integer, text, text)
    AS j (run, changes, progress, model_failures, requests, input_tokens, output_tokens, now, status, ended_seq, error,
        result)
WHERE r.key = j.run

-- name: insert_events
INSERT INTO @event (conversation, seq, run, type, turn, n, data)
SELECT * FROM :rows(bigint, integer, bigint, smallint, integer, integer, text)

-- name: update_conversations
UPDATE @conversation AS c SET last_seq = j.last_seq, updated_at = j.now
FROM :rows(bigint, integer, bigint) AS j (conversation, last_seq, now)
WHERE c.key = j.conversation

-- name: decided_open_calls
SELECT t.n FROM @tool_call AS t JOIN @approval AS a ON a.run = t.run AND a.turn = t.turn AND a.n = t.n
WHERE t.run = :run AND t.status = 'open' AND a.decision IS NOT NULL

-- name: pause_run
UPDATE @run SET status = 'waiting', wake_at = :until, waits = :kinds WHERE key = :run

-- ---------------------------------------------------------------- ending a run from outside

-- name: run_to_cancel
SELECT r.id, r.conversation, r.status, r.ended_seq, r.worker, c.last_seq, c.held_until
FROM @run AS r JOIN @conversation AS c ON c.key = r.conversation WHERE r.key = :run

-- name: deltas
SELECT data FROM @event WHERE run = :run AND type = 4 ORDER BY seq

-- name: cancel_run
UPDATE @run
SET status = 'cancelled', fence = fence + 1, ended_seq = :ended_seq, wake_at = NULL, waits = NULL, updated_at = :now
WHERE key = :run

-- name: close_approvals
UPDATE @approval AS a SET whose = NULL
FROM :rows(bigint) AS j (run) WHERE a.run = j.run AND a.whose IS NOT NULL

-- ---------------------------------------------------------------- deciding

-- name: call_view
SELECT r.key, r.conversation, r.status, r.ended_seq, c.agent, c.id, r.principal, r.facts, c.last_seq
FROM @run AS r JOIN @conversation AS c ON c.key = r.conversation WHERE r.id = :run_id

-- name: decide_approval
UPDATE @approval
SET decision = :decision, decided_at = :now, decided_by = :by, reason = :reason, arguments = :arguments, whose = NULL
WHERE run = :run AND turn = :turn AND n = :n

-- name: wake_run
UPDATE @run SET status = 'queued', wake_at = :now, waits = NULL, updated_at = :now
WHERE key = :run AND status = 'waiting'

-- ---------------------------------------------------------------- erasing

-- name: conversation_to_erase
SELECT key FROM @conversation
WHERE id = :id AND principal = :principal AND (:agent::text IS NULL OR agent = :agent)

-- name: erase_steps
DELETE FROM @step WHERE run = ANY(ARRAY(SELECT key FROM @run WHERE conversation = :conversation))

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
    SELECT v::smallint FROM json_array_elements_text(:types::json) AS v))
ORDER BY key

-- name: delivery
SELECT e.key, e.conversation, e.seq, e.run, r.id, e.type, e.turn, e.n, e.data, c.agent, c.id, r.principal, r.facts
FROM @event AS e
JOIN @run AS r ON r.key = e.run
JOIN @conversation AS c ON c.key = r.conversation
WHERE e.conversation = :conversation AND e.seq >= :seq AND e.key <= :until
    AND e.type = ANY(ARRAY(SELECT v::smallint FROM json_array_elements_text(:types::json) AS v))
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
SELECT m.run, r.id, m.turn, m.id, m.text, m.status, m.files, m.created_at
FROM json_array_elements_text(:rows::json) AS j (key)
JOIN @message AS m ON m.run = j.key::bigint
JOIN @run AS r ON r.key = m.run
ORDER BY m.run, m.turn

-- name: messages_of_turns
SELECT m.run, r.id, m.turn, m.id, m.text, m.status, m.files, m.created_at
FROM json_array_elements(:rows::json) AS j (place)
JOIN @message AS m ON m.run = (j.place ->> 0)::bigint AND m.turn = (j.place ->> 1)::bigint
JOIN @run AS r ON r.key = m.run
ORDER BY m.run, m.turn

-- name: calls_of_turns
SELECT t.run, r.id, t.turn, t.n, t.tool, t.arguments, t.effect, t.status, t.tries, t.failures, t.result,
    a.approver, a.created_at, a.expires_at, a.decision, a.decided_by, a.reason, a.arguments
FROM json_array_elements(:rows::json) AS j (place)
JOIN @tool_call AS t ON t.run = (j.place ->> 0)::bigint AND t.turn = (j.place ->> 1)::bigint
JOIN @run AS r ON r.key = t.run
LEFT JOIN @approval AS a ON a.run = t.run AND a.turn = t.turn AND a.n = t.n
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

-- name: earlier_runs
SELECT key FROM @run WHERE conversation = :conversation AND key < :run ORDER BY key

-- ---------------------------------------------------------------- reads for the outside

-- name: find_run
SELECT r.key FROM @run AS r JOIN @conversation AS c ON c.key = r.conversation
WHERE r.id = :id AND r.principal = :principal AND (:agent::text IS NULL OR c.agent = :agent)

-- name: run_view
SELECT r.key, r.id, c.agent, c.id, r.principal, r.facts, r.status, r.ended_seq, r.waits, r.attempt, r.requests,
    r.input_tokens, r.output_tokens, r.error, r.result, r.created_at, r.updated_at,
    CASE WHEN r.status = 'completed' THEN
        (SELECT m.text FROM @message AS m WHERE m.run = r.key ORDER BY m.turn DESC LIMIT 1)
    END
FROM @run AS r JOIN @conversation AS c ON c.key = r.conversation
WHERE r.id = :id AND (:agent::text IS NULL OR c.agent = :agent) AND
    (r.principal = :principal OR (c.agent = ANY(ARRAY(SELECT json_array_elements_text(:readable::json)))
        AND substr(r.principal, strpos(r.principal || chr(31), chr(31))) = :tenant))

-- name: run_views
SELECT r.key, r.id, c.agent, c.id, r.principal, r.facts, r.status, r.ended_seq, r.waits, r.attempt, r.requests,
    r.input_tokens, r.output_tokens, r.error, r.result, r.created_at, r.updated_at,
    CASE WHEN r.status = 'completed' THEN
        (SELECT m.text FROM @message AS m WHERE m.run = r.key ORDER BY m.turn DESC LIMIT 1)
    END
FROM json_array_elements_text(:rows::json) AS j (key)
JOIN @run AS r ON r.key = j.key::bigint
JOIN @conversation AS c ON c.key = r.conversation

-- name: open_approvals_of_runs
SELECT a.run, a.turn, a.n, t.tool, t.arguments, a.expires_at
FROM json_array_elements_text(:rows::json) AS j (key)
JOIN @approval AS a ON a.run = j.key::bigint AND a.decision IS NULL
JOIN @tool_call AS t ON t.run = a.run AND t.turn = a.turn AND t.n = a.n AND t.status = 'open'
ORDER BY a.run, a.turn, a.n

-- name: list_runs
SELECT r.key FROM @run AS r JOIN @conversation AS c ON c.key = r.conversation
WHERE r.principal = :principal AND r.key < :before AND (:agent::text IS NULL OR c.agent = :agent)
ORDER BY r.key DESC LIMIT :limit

-- name: list_approvals
SELECT a.run, a.turn, a.n, r.id, c.agent, c.id, r.principal, r.facts
FROM @approval AS a
JOIN @tool_call AS t ON t.run = a.run AND t.turn = a.turn AND t.n = a.n AND t.status = 'open'
JOIN @run AS r ON r.key = a.run
JOIN @conversation AS c ON c.key = r.conversation
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
WHERE r.conversation = :conversation AND r.status IN ('queued', 'running', 'waiting')

-- name: messages_told_later
SELECT run, turn FROM @event WHERE conversation = :conversation AND seq > :seq::bigint AND type = 5

-- name: newest_messages
SELECT m.run, m.turn FROM @run AS r JOIN @message AS m ON m.run = r.key
WHERE r.conversation = :conversation AND r.key <= :run AND (r.key < :run OR m.turn < :turn::bigint)
ORDER BY r.key DESC, m.turn DESC LIMIT :limit

-- name: log_of_run
SELECT r.key, r.conversation, r.first_seq, c.last_seq, r.ended_seq, c.id
FROM @run AS r JOIN @conversation AS c ON c.key = r.conversation
WHERE r.id = :id AND (:agent::text IS NULL OR c.agent = :agent) AND
    (r.principal = :principal OR (c.agent = ANY(ARRAY(SELECT json_array_elements_text(:readable::json)))
        AND substr(r.principal, strpos(r.principal || chr(31), chr(31))) = :tenant))

-- name: log_of_conversation
SELECT c.key, c.last_seq,
    (SELECT r.first_seq FROM @run AS r WHERE r.conversation = c.key ORDER BY r.key DESC LIMIT 1)
FROM @conversation AS c
WHERE c.id = :id AND (:agent::text IS NULL OR c.agent = :agent) AND
    (c.principal = :principal OR (c.agent = ANY(ARRAY(SELECT json_array_elements_text(:readable::json)))
        AND substr(c.principal, strpos(c.principal || chr(31), chr(31))) = :tenant))

-- name: log_after
SELECT e.key, e.conversation, e.seq, e.run, r.id, e.type, e.turn, e.n, e.data, c.agent, c.id
FROM @event AS e JOIN @run AS r ON r.key = e.run JOIN @conversation AS c ON c.key = e.conversation
WHERE e.conversation = :conversation AND e.seq > :after::bigint
ORDER BY e.seq LIMIT :limit

-- name: log_of_run_after
SELECT e.key, e.conversation, e.seq, e.run, r.id, e.type, e.turn, e.n, e.data, c.agent, c.id
FROM @run AS r
JOIN @event AS e ON e.conversation = r.conversation AND e.run = r.key AND e.seq >= r.first_seq
    AND e.seq <= coalesce(r.ended_seq, 2147483647)
JOIN @conversation AS c ON c.key = r.conversation
WHERE r.key = :run AND e.conversation = :conversation AND e.seq > :after::bigint
ORDER BY e.seq LIMIT :limit

-- name: events_between
-- Of some conversations, each from a number to a number; of types, unless these are NULL.
SELECT e.key, e.conversation, e.seq, e.run, coalesce(r.id, x.id), e.type, e.turn, e.n, e.data, c.agent, c.id
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
    SELECT key, conversation, status FROM @run WHERE key < :before ORDER BY key DESC LIMIT :looked_at
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
        AND key < :before
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
    WHERE status IN ('failed', 'cancelled') AND status = :status AND key < :before
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
    WHERE status IN ('queued', 'running', 'waiting') AND status = :status AND key < :before
    ORDER BY key DESC LIMIT :looked_at
)
(
    SELECT w.key, 0 FROM w JOIN @conversation AS c ON c.key = w.conversation
    WHERE :agent::text IS NULL OR c.agent = :agent
    ORDER BY w.key DESC LIMIT :limit
)
UNION ALL SELECT min(key), count(*) FROM w

-- name: open_approvals
SELECT a.run, a.turn, a.n, r.id, c.agent, c.id, r.principal, r.facts
FROM @approval AS a
JOIN @tool_call AS t ON t.run = a.run AND t.turn = a.turn AND t.n = a.n AND t.status = 'open'
JOIN @run AS r ON r.key = a.run
JOIN @conversation AS c ON c.key = r.conversation
WHERE a.whose IS NOT NULL AND (a.run, a.turn, a.n) > (:run, :turn, :n)
    AND a.decision IS NULL AND (a.expires_at IS NULL OR a.expires_at > :now)
ORDER BY a.run, a.turn, a.n LIMIT :limit

-- name: insert_secret
INSERT INTO @secret (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING

-- name: secret
SELECT value FROM @secret WHERE name = :name

-- name: count_open_runs
SELECT count(*) FROM @run WHERE status IN ('queued', 'running', 'waiting')

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
