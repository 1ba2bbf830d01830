-- Queries that both dialects share. One statement per name; {name} is replaced by the statement of that name.

-- name: job_columns
job_id, team, task, instance, pool, resource_type, payload, descending_priority, max_attempts, seq, submitted_at,
state, epoch, failures, lease_id, worker, lease_s, claimed_at, finished_at, last_error, result, result_ref, checksum

-- name: version
SELECT max(version) FROM migrations;

-- name: record_version
INSERT INTO migrations (version, name, applied_at) VALUES (:version, :name, :applied_at);

-- name: counts
SELECT team, pool, task, state, count(*), min(descending_priority), min(seq) FROM jobs GROUP BY team, pool, task, state;

-- name: withdrawn
SELECT team, count(*) FROM jobs WHERE state = 'dead' AND substr(last_error, 1, 9) = 'withdrawn' GROUP BY team;

-- name: in_progress
SELECT {job_columns} FROM jobs WHERE state = 'in_progress' ORDER BY seq;

-- name: resources
SELECT pool, host, port, compatible_task, not_compatible_task, body, number, state, epoch, lease_id, job_id, worker,
       lease_s, reserved_at, note, also
FROM resources;

-- name: next_indexes
SELECT pool, next_index FROM pools;

-- name: last_claims
SELECT team, max(entry) FROM jobs JOIN (
  SELECT entry, job_id FROM history WHERE what = 'claimed' ORDER BY entry DESC LIMIT :limit
) AS last_claims USING (job_id) GROUP BY team;

-- name: last_numbers
SELECT (SELECT coalesce(max(seq), -1) FROM jobs), (SELECT coalesce(max(entry), -1) FROM history);

-- name: pending
SELECT {job_columns} FROM jobs
WHERE state = 'pending' AND team = :team AND pool = :pool AND task = :task
  AND (descending_priority, failures, seq) > (:descending_priority, :failures, :seq)
ORDER BY descending_priority, failures, seq LIMIT :limit;

-- name: reply
SELECT key, fingerprint, status, body, at FROM replies WHERE key = :key;

-- name: finished
SELECT completed_entry, {job_columns} FROM jobs
WHERE completed_entry >= 0 AND completed_entry > :after AND state = 'done' {filters}
ORDER BY completed_entry LIMIT :limit;

-- name: entries_of_job
-- The text added to `what` prevents use of the index of kinds, in which all claims of the queue have the same kind.
SELECT entry, at, what, job_id, epoch, lease_id, worker, resource_id, note FROM history
WHERE job_id = :job_id AND what || '' = :what {filters} ORDER BY entry LIMIT :limit;

-- name: history
SELECT entry, at, what, job_id, epoch, lease_id, worker, resource_id, note FROM history
WHERE entry > :after {filters} ORDER BY entry LIMIT :limit;
