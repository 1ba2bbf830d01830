CREATE TABLE migrations (version integer PRIMARY KEY, name text NOT NULL, applied_at float8 NOT NULL);

CREATE TABLE jobs (
  seq bigint PRIMARY KEY, job_id text NOT NULL UNIQUE,
  team text NOT NULL, task text NOT NULL, instance text NOT NULL, pool text NOT NULL, resource_type text NOT NULL,
  payload text NOT NULL, descending_priority bigint NOT NULL, max_attempts bigint NOT NULL, submitted_at float8 NOT NULL,
  state text NOT NULL CHECK (state IN ('pending', 'in_progress', 'done', 'dead')), epoch bigint NOT NULL, failures bigint NOT NULL, lease_id text NOT NULL, worker text NOT NULL,
  lease_s float8 NOT NULL, claimed_at float8 NOT NULL, finished_at float8 NOT NULL, last_error text NOT NULL,
  result text NOT NULL, result_ref text NOT NULL, checksum text NOT NULL,
  -- Entry of the history at which it was completed, -1 before.
  completed_entry bigint NOT NULL
) WITH (
  -- Every job is written three times: dead versions are a fixed share of the table, and are cleared while they are few.
  autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05
);
CREATE INDEX jobs_pending ON jobs (team, pool, task, descending_priority, failures, seq) WHERE state = 'pending';
CREATE INDEX jobs_in_progress ON jobs (seq) WHERE state = 'in_progress';
CREATE INDEX jobs_dead ON jobs (seq) WHERE state = 'dead';
CREATE INDEX jobs_of_team ON jobs (team, seq);
CREATE INDEX jobs_completed ON jobs (completed_entry) WHERE completed_entry >= 0;
CREATE INDEX jobs_completed_of_team ON jobs (team, completed_entry) WHERE completed_entry >= 0;

CREATE TABLE resources (
  pool text NOT NULL, number bigint NOT NULL, host text NOT NULL, port bigint NOT NULL,
  -- Tasks, as JSON arrays.
  compatible_task text NOT NULL, not_compatible_task text NOT NULL, body text NOT NULL, state text NOT NULL,
  epoch bigint NOT NULL, lease_id text NOT NULL, job_id text NOT NULL, worker text NOT NULL, lease_s float8 NOT NULL,
  reserved_at float8 NOT NULL, note text NOT NULL,
  PRIMARY KEY (pool, number)
);

-- A server's number is never given again, though the server is gone.
CREATE TABLE pools (pool text PRIMARY KEY, next_index bigint NOT NULL);

CREATE TABLE history (
  entry bigint PRIMARY KEY, at float8 NOT NULL, what text NOT NULL, job_id text NOT NULL, epoch bigint NOT NULL,
  lease_id text NOT NULL, worker text NOT NULL, resource_id text NOT NULL, note text NOT NULL
);
CREATE INDEX history_of_job ON history (job_id, entry);
CREATE INDEX history_of_kind ON history (what, entry);

CREATE TABLE replies (
  key text PRIMARY KEY, fingerprint text NOT NULL, status bigint NOT NULL, body text NOT NULL, at float8 NOT NULL
);
CREATE INDEX replies_by_age ON replies (at);
