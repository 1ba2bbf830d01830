-- What is submitted of a job is written once. How far it has come lies in narrow rows of their own, in one table for
-- the jobs that wait, one for those that are held and one for those that have ended: a claim or a completion moves such
-- a row, and writes into the few indexes of the table that it comes to.
CREATE TABLE submitted (
  seq bigint PRIMARY KEY, job_id text NOT NULL UNIQUE,
  team text NOT NULL, instance text NOT NULL, resource_type text NOT NULL, payload text NOT NULL,
  max_attempts bigint NOT NULL, submitted_at float8 NOT NULL
);

CREATE TABLE progress (
  seq bigint NOT NULL, team text NOT NULL, pool text NOT NULL, task text NOT NULL, descending_priority bigint NOT NULL,
  state text NOT NULL, epoch bigint NOT NULL, failures bigint NOT NULL, lease_id text NOT NULL, worker text NOT NULL,
  lease_s float8 NOT NULL, claimed_at float8 NOT NULL, finished_at float8 NOT NULL, last_error text NOT NULL,
  result text NOT NULL, result_ref text NOT NULL, checksum text NOT NULL,
  -- Entry of the history at which it was completed, -1 before.
  completed_entry bigint NOT NULL
) PARTITION BY LIST (state);
-- Rows of the first two do not stay: what they leave behind is cleared while it is little.
CREATE TABLE pending PARTITION OF progress (PRIMARY KEY (seq)) FOR VALUES IN ('pending')
  WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE in_progress PARTITION OF progress (PRIMARY KEY (seq)) FOR VALUES IN ('in_progress')
  WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);
CREATE TABLE ended PARTITION OF progress (PRIMARY KEY (seq)) FOR VALUES IN ('done', 'dead');

INSERT INTO submitted SELECT seq, job_id, team, instance, resource_type, payload, max_attempts, submitted_at FROM jobs;
INSERT INTO progress
SELECT seq, team, pool, task, descending_priority, state, epoch, failures, lease_id, worker, lease_s, claimed_at,
  finished_at, last_error, result, result_ref, checksum, completed_entry
FROM jobs;
DROP TABLE jobs;
ALTER INDEX in_progress_pkey RENAME TO jobs_in_progress;
CREATE INDEX jobs_of_team ON submitted (team, seq);
CREATE INDEX jobs_pending ON pending (team, pool, task, descending_priority, failures, seq);
CREATE INDEX jobs_dead ON ended (seq) WHERE state = 'dead';
CREATE INDEX jobs_completed ON ended (completed_entry) WHERE completed_entry >= 0;
CREATE INDEX jobs_completed_of_team ON ended (team, completed_entry) WHERE completed_entry >= 0;

-- LEFT, though every job has both: what asks for nothing of `submitted` does not read it.
CREATE VIEW jobs AS
SELECT progress.seq, job_id, progress.team, task, instance, pool, resource_type, payload, descending_priority,
  max_attempts, submitted_at, state, epoch, failures, lease_id, worker, lease_s, claimed_at, finished_at, last_error,
  result, result_ref, checksum, completed_entry
FROM progress LEFT JOIN submitted ON submitted.seq = progress.seq;
