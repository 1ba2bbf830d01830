-- Statements for SQLite: one row per execution.

-- name: has_tables
SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'migrations';

-- name: jobs_by_id
SELECT {job_columns} FROM jobs WHERE job_id IN (SELECT value FROM json_each(:job_ids));

-- name: listed_jobs
SELECT {job_columns} FROM jobs WHERE seq > :after {filters} ORDER BY seq LIMIT :limit;

-- name: add_jobs
INSERT INTO jobs ({job_columns}, completed_entry)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: change_jobs
UPDATE jobs SET state = ?2, epoch = ?3, failures = ?4, lease_id = ?5, worker = ?6, lease_s = ?7, claimed_at = ?8,
  finished_at = ?9, last_error = ?10, result = ?11, result_ref = ?12, checksum = ?13,
  completed_entry = max(completed_entry, ?14)
WHERE seq = ?1;

-- name: add_history
INSERT INTO history (entry, at, what, job_id, epoch, lease_id, worker, resource_id, note)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: put_resources
INSERT OR REPLACE INTO resources (
  pool, host, port, compatible_task, not_compatible_task, body, number, state, epoch, lease_id, job_id, worker, lease_s,
  reserved_at, note, also
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: remove_resources
DELETE FROM resources WHERE pool = ? AND number = ?;

-- name: grow_pools
INSERT INTO pools (pool, next_index) VALUES (?, ?)
ON CONFLICT (pool) DO UPDATE SET next_index = max(next_index, excluded.next_index);

-- name: put_replies
INSERT OR REPLACE INTO replies (key, fingerprint, status, body, at) VALUES (?, ?, ?, ?, ?);

-- name: forget_replies
DELETE FROM replies WHERE at < ?;

-- name: empty_late_results
UPDATE history SET note = '' WHERE what = 'late_result' AND at < ? AND note <> '';
