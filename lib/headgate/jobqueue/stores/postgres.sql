-- Statements for PostgreSQL: all rows of a table in one statement, each parameter one column.

-- name: has_tables
SELECT count(*) FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'migrations';

-- name: take_ownership
-- Any pair of numbers that no other application is likely to lock; the lock counts within its database.
SELECT pg_advisory_lock(1751474532, 1);

-- name: holder
SELECT activity.application_name, coalesce(host(activity.client_addr), 'this machine'), activity.pid
FROM pg_locks AS locks JOIN pg_stat_activity AS activity USING (pid)
WHERE locks.locktype = 'advisory' AND locks.granted AND locks.classid = 1751474532 AND locks.objid = 1
  AND locks.objsubid = 2 AND locks.database = (SELECT oid FROM pg_database WHERE datname = current_database());

-- name: jobs_by_id
SELECT {job_columns} FROM jobs WHERE job_id = ANY (:job_ids::text[]);

-- name: listed_jobs
-- Filters on the team of `submitted`, where a team's jobs are a range; the cursor bounds both tables, so that whichever
-- is read first starts behind it.
SELECT {job_columns} FROM submitted JOIN progress AS progress (seq, same_team) USING (seq)
WHERE seq > :after AND progress.seq > :after {filters} ORDER BY seq LIMIT :limit;

-- name: add_jobs
WITH new (
  {job_columns}, completed_entry
) AS MATERIALIZED (
  SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[],
    %s::bigint[], %s::bigint[], %s::bigint[], %s::float8[], %s::text[], %s::bigint[], %s::bigint[], %s::text[],
    %s::text[], %s::float8[], %s::float8[], %s::float8[], %s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[])
), added AS (
  INSERT INTO submitted (seq, job_id, team, instance, resource_type, payload, max_attempts, submitted_at)
  SELECT seq, job_id, team, instance, resource_type, payload, max_attempts, submitted_at FROM new
)
INSERT INTO progress (seq, team, pool, task, descending_priority, state, epoch, failures, lease_id, worker, lease_s,
  claimed_at, finished_at, last_error, result, result_ref, checksum, completed_entry)
SELECT seq, team, pool, task, descending_priority, state, epoch, failures, lease_id, worker, lease_s, claimed_at,
  finished_at, last_error, result, result_ref, checksum, completed_entry
FROM new;

-- name: change_jobs
-- A row moves to another table when its new state belongs there.
UPDATE progress SET state = n.state, epoch = n.epoch, failures = n.failures, lease_id = n.lease_id, worker = n.worker,
  lease_s = n.lease_s, claimed_at = n.claimed_at, finished_at = n.finished_at, last_error = n.last_error,
  result = n.result, result_ref = n.result_ref, checksum = n.checksum,
  completed_entry = greatest(progress.completed_entry, n.completed_entry)
FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::float8[], %s::float8[],
  %s::float8[], %s::text[], %s::text[], %s::text[], %s::text[], %s::bigint[])
  AS n (seq, state, epoch, failures, lease_id, worker, lease_s, claimed_at, finished_at, last_error, result, result_ref,
        checksum, completed_entry)
WHERE progress.seq = n.seq;

-- name: add_history
INSERT INTO history (entry, at, what, job_id, epoch, lease_id, worker, resource_id, note)
SELECT * FROM unnest(%s::bigint[], %s::float8[], %s::text[], %s::text[], %s::bigint[], %s::text[], %s::text[],
  %s::text[], %s::text[]);

-- name: put_resources
INSERT INTO resources (
  pool, host, port, compatible_task, not_compatible_task, body, number, state, epoch, lease_id, job_id, worker, lease_s,
  reserved_at, note, also
)
SELECT * FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::text[], %s::text[], %s::text[], %s::bigint[],
  %s::text[], %s::bigint[], %s::text[], %s::text[], %s::text[], %s::float8[], %s::float8[], %s::text[], %s::text[])
ON CONFLICT (pool, number) DO UPDATE SET host = excluded.host, port = excluded.port,
  compatible_task = excluded.compatible_task, not_compatible_task = excluded.not_compatible_task, body = excluded.body,
  state = excluded.state, epoch = excluded.epoch, lease_id = excluded.lease_id, job_id = excluded.job_id,
  worker = excluded.worker, lease_s = excluded.lease_s, reserved_at = excluded.reserved_at, note = excluded.note,
  also = excluded.also;

-- name: remove_resources
DELETE FROM resources USING unnest(%s::text[], %s::bigint[]) AS gone (pool, number)
WHERE resources.pool = gone.pool AND resources.number = gone.number;

-- name: grow_pools
INSERT INTO pools (pool, next_index) SELECT * FROM unnest(%s::text[], %s::bigint[])
ON CONFLICT (pool) DO UPDATE SET next_index = greatest(pools.next_index, excluded.next_index);

-- name: put_replies
INSERT INTO replies (key, fingerprint, status, body, at)
SELECT * FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::text[], %s::float8[])
ON CONFLICT (key) DO UPDATE SET fingerprint = excluded.fingerprint, status = excluded.status, body = excluded.body,
  at = excluded.at;

-- name: forget_replies
DELETE FROM replies WHERE at < ANY (%s::float8[]);

-- name: empty_late_results
UPDATE history SET note = '' WHERE what = 'late_result' AND at < ANY (%s::float8[]) AND note <> '';
