-- The local journal of a campaign. One statement per name; `journal.py` loads them by name.

-- name: schema
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pairs (
  model TEXT NOT NULL, environment TEXT NOT NULL,
  next_sequence INTEGER NOT NULL, last_due REAL,
  PRIMARY KEY (model, environment)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS open_tasks (
  task_id TEXT PRIMARY KEY, model TEXT NOT NULL, environment TEXT NOT NULL, sequence INTEGER NOT NULL,
  stage TEXT NOT NULL, data_length INTEGER NOT NULL, due_at REAL NOT NULL, weight REAL NOT NULL, attempt INTEGER NOT NULL,
  holder TEXT NOT NULL, started INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spool (
  position INTEGER PRIMARY KEY AUTOINCREMENT, task_id TEXT NOT NULL UNIQUE, sample BLOB NOT NULL,
  accepted_at REAL NOT NULL, holder TEXT NOT NULL, batch_id TEXT
);
CREATE INDEX IF NOT EXISTS spool_by_batch ON spool (batch_id) WHERE batch_id IS NOT NULL;
-- Whose rows wait and which are next, without reading the samples themselves: a spool of days stays quick.
CREATE INDEX IF NOT EXISTS spool_by_holder ON spool (holder, batch_id);
CREATE TABLE IF NOT EXISTS counts (
  model TEXT NOT NULL, environment TEXT NOT NULL, minute INTEGER NOT NULL, samples INTEGER NOT NULL,
  PRIMARY KEY (model, environment, minute)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS given (task_id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pauses (model TEXT PRIMARY KEY, level INTEGER NOT NULL, until REAL NOT NULL) WITHOUT ROWID;

-- name: has_meta
SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'meta';

-- name: meta
SELECT value FROM meta WHERE key = :key;

-- name: set_meta
INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: set_meta_once
INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO NOTHING;

-- name: last_due
SELECT last_due FROM pairs WHERE model = ? AND environment = ?;

-- name: take_number
-- The next number, unless the due time lies less than the given distance after the one last taken.
INSERT INTO pairs (model, environment, next_sequence, last_due) VALUES (?1, ?2, 1, ?3)
ON CONFLICT (model, environment) DO UPDATE SET next_sequence = next_sequence + 1, last_due = excluded.last_due
WHERE last_due IS NULL OR excluded.last_due >= last_due + ?4
RETURNING next_sequence - 1;

-- name: note_number
INSERT INTO pairs (model, environment, next_sequence, last_due) VALUES (?, ?, ?, ?)
ON CONFLICT (model, environment) DO UPDATE SET
  next_sequence = max(next_sequence, excluded.next_sequence), last_due = excluded.last_due;

-- name: raise_pair
INSERT INTO pairs (model, environment, next_sequence, last_due) VALUES (?, ?, ?, ?)
ON CONFLICT (model, environment) DO UPDATE SET
  next_sequence = max(next_sequence, excluded.next_sequence), last_due = coalesce(last_due, excluded.last_due);

-- name: pairs
SELECT model, environment, next_sequence, last_due FROM pairs;

-- name: open_task
INSERT OR IGNORE INTO open_tasks
  (task_id, model, environment, sequence, stage, data_length, due_at, weight, attempt, holder)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 1, ?);

-- name: give
INSERT OR IGNORE INTO given (task_id) VALUES (?);

-- name: forget_given
DELETE FROM given WHERE task_id = ?;

-- name: held_among
SELECT task_id FROM open_tasks
WHERE holder = :holder AND task_id IN (SELECT value FROM json_each(:task_ids));

-- name: close_task
DELETE FROM open_tasks WHERE task_id = ?;

-- name: spool_sample
INSERT INTO spool (task_id, sample, accepted_at, holder) VALUES (?, ?, ?, ?);

-- name: count
INSERT INTO counts (model, environment, minute, samples) VALUES (?, ?, ?, ?)
ON CONFLICT (model, environment, minute) DO UPDATE SET samples = samples + excluded.samples;

-- name: forget_counts
DELETE FROM counts WHERE minute < :minute;

-- name: counts_since
SELECT model, environment, minute, samples FROM counts WHERE minute >= :minute;

-- name: start_task
UPDATE open_tasks SET started = 1 WHERE task_id = ?;

-- name: abandon_tasks
UPDATE open_tasks SET holder = '', started = 0 WHERE holder = :holder;

-- name: count_deaths
UPDATE open_tasks SET attempt = attempt + 1 WHERE holder = :holder AND started = 1;

-- name: abandon_samples
UPDATE spool SET holder = '' WHERE holder = :holder;

-- name: adopt_samples
UPDATE spool SET holder = :holder WHERE holder = '';

-- name: unheld_tasks
SELECT task_id, model, environment, sequence, stage, data_length, due_at, weight, attempt FROM open_tasks
WHERE holder = '' ORDER BY due_at;

-- name: adopt_task
UPDATE open_tasks SET holder = ? WHERE task_id = ?;

-- name: holders
SELECT holder FROM open_tasks WHERE holder != '' UNION SELECT holder FROM spool WHERE holder != '';

-- name: open_count
SELECT count(*) FROM open_tasks;

-- name: spool_state
SELECT count(*), (
  SELECT accepted_at FROM spool WHERE holder = :holder AND batch_id IS NULL ORDER BY position LIMIT 1
), count(batch_id) FROM spool WHERE holder = :holder;

-- name: spool_count
SELECT count(*) FROM spool;

-- name: assigned_batch
SELECT batch_id FROM spool WHERE holder = :holder AND batch_id IS NOT NULL ORDER BY batch_id LIMIT 1;

-- name: assign_batch
UPDATE spool SET batch_id = :batch_id WHERE position IN (
  SELECT position FROM spool WHERE holder = :holder AND batch_id IS NULL ORDER BY position LIMIT :rows
);

-- name: batch_rows
SELECT sample FROM spool WHERE batch_id = :batch_id ORDER BY position;

-- name: spooled_samples
SELECT sample FROM spool ORDER BY position;

-- name: remove_batch
DELETE FROM spool WHERE batch_id = :batch_id;

-- name: set_pause
INSERT INTO pauses (model, level, until) VALUES (:model, :level, :until)
ON CONFLICT (model) DO UPDATE SET level = excluded.level, until = excluded.until;

-- name: clear_pause
DELETE FROM pauses WHERE model = :model;

-- name: pauses
SELECT model, level, until FROM pauses;
