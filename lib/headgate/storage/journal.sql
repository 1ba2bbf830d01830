-- A campaign's journal, for SQLite and, except for the schema, PostgreSQL; `journal_postgres.sql` has the differences.

-- name: schema
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pairs (
  pair INTEGER PRIMARY KEY, model TEXT NOT NULL, environment TEXT NOT NULL,
  next_sequence INTEGER NOT NULL DEFAULT 0, last_due REAL,
  UNIQUE (model, environment)
);
-- Rows are found by position: tasks opened together share pages, so that a write rarely touches a page of its own.
CREATE TABLE IF NOT EXISTS open_tasks (
  position INTEGER PRIMARY KEY, pair INTEGER NOT NULL, sequence INTEGER NOT NULL, stage TEXT NOT NULL,
  data_length INTEGER NOT NULL, due_at REAL NOT NULL, weight REAL NOT NULL, attempt INTEGER NOT NULL,
  holder TEXT NOT NULL, started INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS spool (
  position INTEGER PRIMARY KEY, holder TEXT NOT NULL, rows INTEGER NOT NULL, accepted_at REAL NOT NULL,
  batch_id TEXT
);
CREATE TABLE IF NOT EXISTS spooled_samples (position INTEGER PRIMARY KEY, samples BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS spool_by_batch ON spool (batch_id) WHERE batch_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS spool_by_holder ON spool (holder, batch_id);
CREATE TABLE IF NOT EXISTS counts (
  minute INTEGER NOT NULL, pair INTEGER NOT NULL, samples INTEGER NOT NULL,
  PRIMARY KEY (minute, pair)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS given (task_id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pauses (model TEXT PRIMARY KEY, level INTEGER NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS told (key TEXT PRIMARY KEY, at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spent (
  model TEXT NOT NULL, minute INTEGER NOT NULL, tokens INTEGER NOT NULL, requests INTEGER NOT NULL,
  cost_micro INTEGER NOT NULL, version INTEGER NOT NULL,
  PRIMARY KEY (model, minute)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS spent_by_version ON spent (version);
CREATE TABLE IF NOT EXISTS grants (
  model TEXT NOT NULL, holder TEXT NOT NULL, tokens INTEGER NOT NULL, requests INTEGER NOT NULL,
  cost_micro INTEGER NOT NULL,
  PRIMARY KEY (model, holder)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS limits (
  provider TEXT NOT NULL, model TEXT NOT NULL, domain TEXT NOT NULL, total INTEGER NOT NULL, learnt_at REAL NOT NULL,
  PRIMARY KEY (provider, model, domain)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS limit_sharers (
  provider TEXT NOT NULL, model TEXT NOT NULL, domain TEXT NOT NULL, holder TEXT NOT NULL,
  PRIMARY KEY (provider, model, domain, holder)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS control_changes (
  revision INTEGER PRIMARY KEY, verb TEXT NOT NULL, model TEXT NOT NULL, environment TEXT NOT NULL, what TEXT NOT NULL,
  value_before TEXT NOT NULL, value_after TEXT NOT NULL, changed_by TEXT NOT NULL, at REAL NOT NULL, reason TEXT NOT NULL
);
-- Withdrawn tasks that are still open; the process that has one in its queue, or takes it over, closes it.
CREATE TABLE IF NOT EXISTS withdrawn (position INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS request_batches (
  key TEXT PRIMARY KEY, holder TEXT NOT NULL, model TEXT NOT NULL, made_at REAL NOT NULL, requests INTEGER NOT NULL,
  stage TEXT NOT NULL, file_id TEXT NOT NULL DEFAULT '', batch_id TEXT NOT NULL DEFAULT '',
  base_url TEXT NOT NULL DEFAULT '', credential TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS batched_requests (
  task_id TEXT NOT NULL, number INTEGER NOT NULL, digest TEXT NOT NULL, sample TEXT NOT NULL, batch TEXT NOT NULL,
  stage TEXT NOT NULL, reply TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (task_id, number)
);
CREATE INDEX IF NOT EXISTS batched_by_sample ON batched_requests (sample);
CREATE INDEX IF NOT EXISTS batched_by_batch ON batched_requests (batch);

-- name: has_meta
SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'meta';

-- name: meta
SELECT value FROM meta WHERE key = :key;

-- name: set_meta
INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: set_meta_once
INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO NOTHING;

-- name: pair
SELECT model, environment, pair, next_sequence, last_due FROM pairs WHERE model = ? AND environment = ?;

-- name: new_pair
INSERT INTO pairs (model, environment) VALUES (?, ?) RETURNING model, environment, pair;

-- name: save_pair
UPDATE pairs SET next_sequence = ?, last_due = ? WHERE pair = ?;

-- name: pairs
SELECT model, environment, next_sequence, last_due FROM pairs;

-- name: last_position
SELECT coalesce(max(position), 0) FROM open_tasks;

-- name: open_task
INSERT INTO open_tasks (position, pair, sequence, stage, data_length, due_at, weight, attempt, holder)
VALUES (?, ?, ?, ?, ?, ?, ?, 1, ?);

-- name: give
INSERT OR IGNORE INTO given (task_id) VALUES (?) RETURNING task_id;

-- name: forget_given
DELETE FROM given WHERE task_id = ?;

-- name: is_open
SELECT 1 FROM open_tasks WHERE pair = ? AND sequence = ? AND stage = ? LIMIT 1;

-- name: held_among
SELECT position FROM open_tasks
WHERE holder = :holder AND position IN (SELECT value FROM json_each(:positions));

-- name: close_task
DELETE FROM open_tasks WHERE position = ?;

-- name: count
INSERT INTO counts (minute, pair, samples) VALUES (?, ?, ?)
ON CONFLICT (minute, pair) DO UPDATE SET samples = counts.samples + excluded.samples;

-- name: forget_counts
DELETE FROM counts WHERE minute < :minute;

-- name: forget_no_counts
DELETE FROM counts WHERE samples <= 0;

-- name: counts_since
SELECT model, environment, minute, samples FROM counts JOIN pairs USING (pair) WHERE minute >= :minute;

-- name: start_task
UPDATE open_tasks SET started = 1 WHERE position = ?;

-- name: abandon_tasks
UPDATE open_tasks SET holder = '', started = 0 WHERE holder = :holder;

-- name: count_deaths
UPDATE open_tasks SET attempt = attempt + 1 WHERE holder = :holder AND started = 1;

-- name: abandon_samples
UPDATE spool SET holder = '' WHERE holder = :holder;

-- name: adopt_samples
UPDATE spool SET holder = :holder WHERE holder = '';

-- name: unheld_tasks
SELECT position, model, environment, sequence, stage, data_length, due_at, weight, attempt
FROM open_tasks JOIN pairs USING (pair) WHERE holder = '' ORDER BY due_at;

-- name: adopt_task
UPDATE open_tasks SET holder = ? WHERE position = ?;

-- name: open_identities
SELECT model, environment, sequence, stage, started FROM open_tasks JOIN pairs USING (pair);

-- name: holders
SELECT holder FROM open_tasks WHERE holder != '' UNION SELECT holder FROM spool WHERE holder != ''
UNION SELECT holder FROM request_batches WHERE holder != '';

-- name: open_count
SELECT count(*) FROM open_tasks;

-- name: spool_state
SELECT coalesce(sum(rows), 0), min(CASE WHEN batch_id IS NULL THEN accepted_at END),
  coalesce(sum(CASE WHEN batch_id IS NOT NULL THEN rows END), 0)
FROM spool WHERE holder = ?;

-- name: spool_count
SELECT coalesce(sum(rows), 0) FROM spool;

-- name: add_chunk
INSERT INTO spool (holder, rows, accepted_at) VALUES (?, ?, ?) RETURNING position;

-- name: add_chunk_samples
INSERT INTO spooled_samples (position, samples) VALUES (?, ?);

-- name: assigned_batch
SELECT batch_id FROM spool WHERE holder = ? AND batch_id IS NOT NULL ORDER BY batch_id LIMIT 1;

-- name: free_chunks
SELECT position, rows, accepted_at, coalesce(length(samples), 0) FROM spool LEFT JOIN spooled_samples USING (position)
WHERE holder = ? AND batch_id IS NULL ORDER BY position;

-- name: assign_chunk
UPDATE spool SET batch_id = ? WHERE position = ?;

-- name: chunk_samples
SELECT samples FROM spooled_samples WHERE position = ?;

-- name: shorten_chunk
UPDATE spool SET rows = ? WHERE position = ?;

-- name: replace_chunk_samples
UPDATE spooled_samples SET samples = ? WHERE position = ?;

-- name: batch_positions
SELECT position FROM spool WHERE batch_id = ? ORDER BY position;

-- name: all_chunks
SELECT samples FROM spool JOIN spooled_samples USING (position) ORDER BY position;

-- name: remove_batch_samples
DELETE FROM spooled_samples WHERE position IN (SELECT position FROM spool WHERE batch_id = ?);

-- name: remove_batch
DELETE FROM spool WHERE batch_id = ?;

-- name: set_pause
INSERT INTO pauses (model, level, until) VALUES (:model, :level, :until)
ON CONFLICT (model) DO UPDATE SET level = excluded.level, until = excluded.until;

-- name: clear_pause
DELETE FROM pauses WHERE model = :model;

-- name: pauses
SELECT model, level, until FROM pauses;

-- name: spent_since
SELECT model, minute, tokens, requests, cost_micro FROM spent WHERE version > ? ORDER BY minute;

-- name: count_spent
INSERT INTO spent (model, minute, tokens, requests, cost_micro, version) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (model, minute) DO UPDATE SET
  tokens = spent.tokens + excluded.tokens, requests = spent.requests + excluded.requests,
  cost_micro = spent.cost_micro + excluded.cost_micro, version = excluded.version;

-- name: forget_spent
DELETE FROM spent WHERE minute < :minute;

-- name: spent_moved
SELECT model, CASE WHEN minute + :by < :now THEN minute + :by ELSE :now END, tokens, requests, cost_micro, version FROM spent WHERE minute >= :since;

-- name: forget_spent_since
DELETE FROM spent WHERE minute >= :minute;

-- name: counts_moved
SELECT CASE WHEN minute + :by < :now THEN minute + :by ELSE :now END, pair, samples FROM counts WHERE minute >= :since;

-- name: forget_counts_since
DELETE FROM counts WHERE minute >= :minute;

-- name: latest_time
SELECT max(at) FROM (
  SELECT max(minute) * 60.0 AS at FROM counts UNION ALL SELECT max(minute) * 60.0 FROM spent
  UNION ALL SELECT max(accepted_at) FROM spool UNION ALL SELECT max(due_at) FROM open_tasks
  UNION ALL SELECT CAST(value AS DOUBLE PRECISION) FROM meta WHERE key = 'clock_seen'
) AS times;

-- name: bring_back_spool
UPDATE spool SET accepted_at = :now WHERE accepted_at > :limit;

-- name: bring_back_tasks
UPDATE open_tasks SET due_at = :now WHERE due_at > :limit;

-- name: claim_notice
INSERT INTO told (key, at) VALUES (:key, :at) ON CONFLICT (key) DO UPDATE SET at = excluded.at
WHERE told.at < :again_before;

-- name: release_notice
DELETE FROM told WHERE key = :key;

-- name: told_notices
SELECT key FROM told;

-- name: bring_back_pauses
UPDATE pauses SET until = :now WHERE until > :limit;

-- name: bring_back_dues
UPDATE pairs SET last_due = :now WHERE environment = :environment AND last_due > :limit;

-- name: move_dues
UPDATE pairs SET last_due = CASE WHEN last_due + :by < :now THEN last_due + :by ELSE :now END WHERE last_due >= :since;

-- name: unreadable_samples
SELECT coalesce(sum(rows), 0) FROM spool LEFT JOIN spooled_samples USING (position)
WHERE samples IS NULL OR NOT readable(samples);

-- name: agree
DELETE FROM spooled_samples WHERE NOT readable(samples);
DELETE FROM spool WHERE position NOT IN (SELECT position FROM spooled_samples);
INSERT INTO spool (position, holder, rows, accepted_at)
SELECT position, '', json_array_length(CAST(samples AS TEXT)), wall() FROM spooled_samples
WHERE position NOT IN (SELECT position FROM spool);
DELETE FROM open_tasks WHERE pair NOT IN (SELECT pair FROM pairs);
-- Numbers in use must not be given out again.
INSERT INTO pairs (model, environment, next_sequence)
SELECT json_extract(value, '$.model') AS model, json_extract(value, '$.environment') AS environment,
  max(json_extract(value, '$.sequence')) + 1
FROM spooled_samples, json_each(CAST(samples AS TEXT)) WHERE true GROUP BY 1, 2
ON CONFLICT (model, environment) DO UPDATE SET next_sequence = max(next_sequence, excluded.next_sequence);
UPDATE pairs SET next_sequence = max(
  next_sequence, (SELECT coalesce(max(sequence) + 1, 0) FROM open_tasks WHERE open_tasks.pair = pairs.pair)
);

-- name: forget_restored
DELETE FROM meta WHERE key = 'restored_at';
DELETE FROM counts;

-- name: grants
SELECT model, holder, tokens, requests, cost_micro FROM grants;

-- name: set_grant
INSERT INTO grants (model, holder, tokens, requests, cost_micro) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (model, holder) DO UPDATE SET
  tokens = excluded.tokens, requests = excluded.requests, cost_micro = excluded.cost_micro;

-- name: drop_grant
DELETE FROM grants WHERE model = ? AND holder = ?;

-- name: drop_grants
DELETE FROM grants WHERE holder = :holder;

-- name: any_limit
SELECT 1 FROM limits LIMIT 1;

-- name: limits
SELECT provider, model, domain, total, learnt_at FROM limits;

-- name: set_limit
INSERT INTO limits (provider, model, domain, total, learnt_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (provider, model, domain) DO UPDATE SET total = excluded.total, learnt_at = excluded.learnt_at;

-- name: limit_sharers
SELECT provider, model, domain, holder FROM limit_sharers;

-- name: share_limit
INSERT INTO limit_sharers (provider, model, domain, holder) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING;

-- name: drop_limit_shares
DELETE FROM limit_sharers WHERE holder = :holder;

-- name: control_revision
SELECT coalesce(max(revision), 0) FROM control_changes;

-- name: control_changes
SELECT * FROM control_changes WHERE revision > :since ORDER BY revision;

-- name: latest_controls
SELECT * FROM control_changes
WHERE revision IN (SELECT max(revision) FROM control_changes GROUP BY model, environment, what) ORDER BY revision;

-- name: add_control
INSERT INTO control_changes (
  revision, verb, model, environment, what, value_before, value_after, changed_by, at, reason
) VALUES (:revision, :verb, :model, :environment, :what, :before, :after, :by, :at, :reason);

-- name: forget_controls
DELETE FROM control_changes WHERE revision <= :until
  AND revision NOT IN (SELECT max(revision) FROM control_changes GROUP BY model, environment, what);

-- name: clear_pauses
DELETE FROM pauses WHERE :model = '' OR model = :model;

-- name: note_withdrawn
INSERT INTO withdrawn (position)
SELECT position FROM open_tasks JOIN pairs USING (pair)
WHERE (:model = '' OR model = :model) AND (:environment = '' OR environment = :environment)
ON CONFLICT DO NOTHING;

-- name: forget_withdrawn
DELETE FROM withdrawn WHERE position NOT IN (SELECT position FROM open_tasks);

-- name: withdrawn
SELECT position FROM withdrawn;

-- name: batches_of
SELECT key, model, made_at, requests, stage, file_id, batch_id, base_url, credential
FROM request_batches WHERE holder = :holder;

-- name: batched_of
SELECT task_id, number, digest, sample, batch, batched_requests.stage
FROM batched_requests JOIN request_batches ON request_batches.key = batch WHERE holder = :holder;

-- name: add_request_batch
INSERT INTO request_batches (key, holder, model, made_at, requests, stage, base_url, credential)
VALUES (?, ?, ?, ?, ?, ?, ?, ?);

-- name: lacks_columns
SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM pragma_table_info('request_batches') WHERE name = 'credential');

-- name: add_columns
BEGIN;
ALTER TABLE request_batches ADD COLUMN base_url TEXT NOT NULL DEFAULT '';
ALTER TABLE request_batches ADD COLUMN credential TEXT NOT NULL DEFAULT '';
COMMIT;

-- name: set_request_batch
UPDATE request_batches SET stage = ?, file_id = ?, batch_id = ? WHERE key = ?;

-- name: add_batched
INSERT INTO batched_requests (task_id, number, digest, sample, batch, stage) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (task_id, number) DO UPDATE SET
  digest = excluded.digest, sample = excluded.sample, batch = excluded.batch, stage = excluded.stage, reply = '';

-- name: set_batched
UPDATE batched_requests SET stage = ?, reply = ? WHERE task_id = ? AND number = ?;

-- name: batched_reply
SELECT reply FROM batched_requests WHERE task_id = ? AND number = ?;

-- name: kept_reply
SELECT digest, reply FROM batched_requests WHERE task_id = ? AND number = ? AND batch = '';

-- name: any_batched
SELECT 1 FROM batched_requests LIMIT 1;

-- name: rest_task
UPDATE open_tasks SET started = 0 WHERE position = ?;

-- name: drop_batched
DELETE FROM batched_requests WHERE sample = ?;

-- name: drop_request_batch
DELETE FROM request_batches WHERE key = :key;

-- name: drop_ended_batches
DELETE FROM request_batches WHERE stage = 'ended'
AND NOT EXISTS (SELECT 1 FROM batched_requests WHERE batch = request_batches.key);

-- name: drop_old_batches
DELETE FROM request_batches WHERE made_at < :before;

-- name: drop_lone_requests
DELETE FROM batched_requests WHERE batch != ''
AND NOT EXISTS (SELECT 1 FROM request_batches WHERE key = batched_requests.batch);

-- name: abandon_request_batches
UPDATE request_batches SET holder = '' WHERE holder = :holder;

-- name: adopt_request_batches
UPDATE request_batches SET holder = :holder WHERE holder = '';
