-- Statements that PostgreSQL needs in another form than `journal.sql`; a statement for many rows takes each column as
-- one array parameter.

-- name: schema
CREATE TABLE IF NOT EXISTS meta (key text PRIMARY KEY, value text NOT NULL);
-- One row, locked by every write transaction. `holder` was the last to allocate positions; `buried` counts holders
-- found dead.
CREATE TABLE IF NOT EXISTS turn (holder text NOT NULL, last_position bigint NOT NULL, buried bigint NOT NULL);
INSERT INTO turn SELECT '', 0, 0 WHERE NOT EXISTS (SELECT FROM turn);
CREATE TABLE IF NOT EXISTS holders (
  holder text PRIMARY KEY, machine text NOT NULL, lease_s float8 NOT NULL,
  seen_at timestamptz NOT NULL DEFAULT clock_timestamp(), committed text NOT NULL DEFAULT '',
  said text NOT NULL DEFAULT ''
);
ALTER TABLE holders ADD COLUMN IF NOT EXISTS committed text NOT NULL DEFAULT '';
ALTER TABLE holders ADD COLUMN IF NOT EXISTS said text NOT NULL DEFAULT '';
CREATE TABLE IF NOT EXISTS pairs (
  pair bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, model text NOT NULL, environment text NOT NULL,
  next_sequence bigint NOT NULL DEFAULT 0, last_due float8,
  UNIQUE (model, environment)
);
CREATE TABLE IF NOT EXISTS open_tasks (
  position bigint PRIMARY KEY, pair bigint NOT NULL, sequence bigint NOT NULL, stage text NOT NULL,
  data_length bigint NOT NULL, due_at float8 NOT NULL, weight float8 NOT NULL, attempt integer NOT NULL,
  holder text NOT NULL, started integer NOT NULL DEFAULT 0,
  UNIQUE (pair, sequence, stage)
);
CREATE TABLE IF NOT EXISTS spool (
  position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, holder text NOT NULL, rows integer NOT NULL,
  accepted_at float8 NOT NULL, batch_id text
);
-- Written once and read at most once: compression would cost more than it saves.
CREATE TABLE IF NOT EXISTS spooled_samples (position bigint PRIMARY KEY, samples bytea NOT NULL);
ALTER TABLE spooled_samples ALTER COLUMN samples SET STORAGE EXTERNAL;
CREATE INDEX IF NOT EXISTS spool_by_batch ON spool (batch_id) WHERE batch_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS spool_by_holder ON spool (holder, batch_id);
CREATE TABLE IF NOT EXISTS counts (
  minute bigint NOT NULL, pair bigint NOT NULL, samples bigint NOT NULL,
  PRIMARY KEY (minute, pair)
);
CREATE TABLE IF NOT EXISTS given (task_id text PRIMARY KEY);
CREATE TABLE IF NOT EXISTS told (key text PRIMARY KEY, at float8 NOT NULL);
CREATE TABLE IF NOT EXISTS pauses (model text PRIMARY KEY, level bigint NOT NULL, until float8 NOT NULL);
CREATE TABLE IF NOT EXISTS spent (
  model text NOT NULL, minute bigint NOT NULL, tokens bigint NOT NULL, requests bigint NOT NULL,
  cost_micro bigint NOT NULL, version bigint NOT NULL,
  PRIMARY KEY (model, minute)
);
CREATE INDEX IF NOT EXISTS spent_by_version ON spent (version);
CREATE TABLE IF NOT EXISTS grants (
  model text NOT NULL, holder text NOT NULL, tokens bigint NOT NULL, requests bigint NOT NULL,
  cost_micro bigint NOT NULL,
  PRIMARY KEY (model, holder)
);
CREATE TABLE IF NOT EXISTS limits (
  provider text NOT NULL, model text NOT NULL, domain text NOT NULL, total bigint NOT NULL, learnt_at float8 NOT NULL,
  PRIMARY KEY (provider, model, domain)
);
CREATE TABLE IF NOT EXISTS limit_sharers (
  provider text NOT NULL, model text NOT NULL, domain text NOT NULL, holder text NOT NULL,
  PRIMARY KEY (provider, model, domain, holder)
);
CREATE TABLE IF NOT EXISTS control_changes (
  revision bigint PRIMARY KEY, verb text NOT NULL, model text NOT NULL, environment text NOT NULL, what text NOT NULL,
  value_before text NOT NULL, value_after text NOT NULL, changed_by text NOT NULL, at float8 NOT NULL,
  reason text NOT NULL
);
CREATE TABLE IF NOT EXISTS withdrawn (position bigint PRIMARY KEY);
CREATE TABLE IF NOT EXISTS request_batches (
  key text PRIMARY KEY, holder text NOT NULL, model text NOT NULL, made_at float8 NOT NULL, requests bigint NOT NULL,
  stage text NOT NULL, file_id text NOT NULL DEFAULT '', batch_id text NOT NULL DEFAULT ''
);
ALTER TABLE request_batches ADD COLUMN IF NOT EXISTS base_url text NOT NULL DEFAULT '';
ALTER TABLE request_batches ADD COLUMN IF NOT EXISTS credential text NOT NULL DEFAULT '';
CREATE TABLE IF NOT EXISTS batched_requests (
  task_id text NOT NULL, number integer NOT NULL, digest text NOT NULL, sample text NOT NULL, batch text NOT NULL,
  stage text NOT NULL, reply text NOT NULL DEFAULT '',
  PRIMARY KEY (task_id, number)
);
CREATE INDEX IF NOT EXISTS batched_by_sample ON batched_requests (sample);
CREATE INDEX IF NOT EXISTS batched_by_batch ON batched_requests (batch);

-- name: has_latest
SELECT 1 FROM information_schema.columns
WHERE table_schema = current_schema()
  AND (table_name, column_name) IN (('request_batches', 'credential'), ('holders', 'committed'), ('holders', 'said'))
HAVING count(*) = 3;

-- name: has_meta
SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'meta';

-- name: prepare_alone
SELECT pg_advisory_lock(1751474532, 2);

-- name: prepared
SELECT pg_advisory_unlock(1751474532, 2);

-- name: take_turn
SELECT holder, buried FROM turn FOR UPDATE;

-- name: keep_turn
UPDATE turn SET holder = :holder;

-- name: mark
UPDATE holders SET committed = :number WHERE holder = :holder;

-- name: is_marked
-- Waits for a transaction that has written the row to end.
SELECT coalesce((SELECT committed = :number FROM holders WHERE holder = :holder FOR UPDATE), false);

-- name: join
WITH back AS (DELETE FROM meta WHERE key = 'lost ' || :holder)
INSERT INTO holders (holder, machine, lease_s, said) VALUES (:holder, :machine, :lease_s, :said)
ON CONFLICT DO NOTHING;

-- name: renew
UPDATE holders SET seen_at = clock_timestamp(), said = :said WHERE holder = :holder;

-- name: leave
DELETE FROM holders WHERE holder = :holder;

-- name: bury
-- No holder could renew while the server was down. What dead holders had announced stays in `meta` for a day.
WITH dead AS (
  DELETE FROM holders WHERE holder = :holder
    AND greatest(seen_at, pg_postmaster_start_time()) + make_interval(secs => lease_s) < clock_timestamp()
  RETURNING extract(epoch FROM greatest(seen_at, pg_postmaster_start_time()))::float8 AS at, said
), counted AS (
  UPDATE turn SET buried = buried + 1 WHERE EXISTS (SELECT FROM dead)
), kept AS (
  INSERT INTO meta SELECT 'lost ' || :holder, json_build_array(at, left(said, 1000))::text FROM dead WHERE said <> ''
  ON CONFLICT (key) DO UPDATE SET value = excluded.value
), swept AS (
  DELETE FROM meta WHERE key <> 'lost ' || :holder AND CASE WHEN starts_with(key, 'lost ')
    THEN (value::json ->> 0)::float8 < extract(epoch FROM clock_timestamp()) - 86400 END
)
SELECT EXISTS (SELECT FROM dead) OR NOT EXISTS (SELECT FROM holders WHERE holder = :holder);

-- name: others
SELECT EXISTS (
  SELECT FROM holders WHERE holder <> :holder
    AND greatest(seen_at, pg_postmaster_start_time()) + make_interval(secs => lease_s) >= clock_timestamp()
);

-- name: schemas_that_say
SELECT quote_ident(table_schema) FROM information_schema.columns
WHERE table_name = 'holders' AND column_name = 'said' AND starts_with(table_schema, 'headgate_journal_');

-- name: said_in
SELECT CASE WHEN greatest(seen_at, pg_postmaster_start_time()) + make_interval(secs => lease_s) >= clock_timestamp()
  THEN 'Infinity' ELSE extract(epoch FROM seen_at)::float8 END, left(said, 1000)
FROM SCHEMA.holders WHERE said <> ''
UNION ALL SELECT (value::json ->> 0)::float8, value::json ->> 1 FROM SCHEMA.meta WHERE starts_with(key, 'lost ')

-- name: clock
SELECT extract(epoch FROM clock_timestamp())::float8;

-- name: pair
SELECT model, environment, pair, next_sequence, last_due
FROM pairs JOIN unnest(%s::text[], %s::text[]) AS n (model, environment) USING (model, environment);

-- name: new_pair
INSERT INTO pairs (model, environment) SELECT * FROM unnest(%s::text[], %s::text[]) RETURNING model, environment, pair;

-- name: save_pair
UPDATE pairs SET next_sequence = n.next_sequence, last_due = n.last_due
FROM unnest(%s::bigint[], %s::float8[], %s::bigint[]) AS n (next_sequence, last_due, pair) WHERE pairs.pair = n.pair;

-- name: last_position
SELECT last_position FROM turn;

-- name: open_task
WITH opened AS (
  SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::text[], %s::bigint[], %s::float8[], %s::float8[],
    %s::text[]) AS n (position, pair, sequence, stage, data_length, due_at, weight, holder)
), counted AS (UPDATE turn SET last_position = (SELECT max(position) FROM opened))
INSERT INTO open_tasks (position, pair, sequence, stage, data_length, due_at, weight, holder, attempt)
SELECT *, 1 FROM opened;

-- name: give
INSERT INTO given (task_id) SELECT DISTINCT * FROM unnest(%s::text[]) ON CONFLICT DO NOTHING RETURNING task_id;

-- name: forget_given
DELETE FROM given WHERE task_id = ANY (%s::text[]);

-- name: held_among
SELECT position FROM open_tasks
WHERE holder = :holder AND position IN (SELECT value::bigint FROM json_array_elements_text(:positions::json));

-- name: close_task
DELETE FROM open_tasks WHERE position = ANY (%s::bigint[]);

-- name: start_task
UPDATE open_tasks SET started = 1 WHERE position = ANY (%s::bigint[]);

-- name: adopt_task
UPDATE open_tasks SET holder = n.holder FROM unnest(%s::text[], %s::bigint[]) AS n (holder, position)
WHERE open_tasks.position = n.position;

-- name: count
INSERT INTO counts (minute, pair, samples)
SELECT minute, pair, sum(samples) FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[]) AS n (minute, pair, samples)
GROUP BY minute, pair
ON CONFLICT (minute, pair) DO UPDATE SET samples = counts.samples + excluded.samples;

-- name: add_chunk
INSERT INTO spool (holder, rows, accepted_at) SELECT * FROM unnest(%s::text[], %s::integer[], %s::float8[])
RETURNING position;

-- name: assign_chunk
UPDATE spool SET batch_id = n.batch_id FROM unnest(%s::text[], %s::bigint[]) AS n (batch_id, position)
WHERE spool.position = n.position;

-- name: count_spent
INSERT INTO spent (model, minute, tokens, requests, cost_micro, version)
SELECT model, minute, sum(tokens), sum(requests), sum(cost_micro), max(version)
FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[])
  AS n (model, minute, tokens, requests, cost_micro, version)
GROUP BY model, minute
ON CONFLICT (model, minute) DO UPDATE SET
  tokens = spent.tokens + excluded.tokens, requests = spent.requests + excluded.requests,
  cost_micro = spent.cost_micro + excluded.cost_micro, version = excluded.version;

-- name: scrub
VACUUM (FULL) spool, spooled_samples;

-- name: add_batched
INSERT INTO batched_requests (task_id, number, digest, sample, batch, stage)
SELECT * FROM unnest(%s::text[], %s::integer[], %s::text[], %s::text[], %s::text[], %s::text[])
ON CONFLICT (task_id, number) DO UPDATE SET
  digest = excluded.digest, sample = excluded.sample, batch = excluded.batch, stage = excluded.stage, reply = '';

-- name: set_batched
UPDATE batched_requests SET stage = n.stage, reply = n.reply
FROM unnest(%s::text[], %s::text[], %s::text[], %s::integer[]) AS n (stage, reply, task_id, number)
WHERE batched_requests.task_id = n.task_id AND batched_requests.number = n.number;

-- name: rest_task
UPDATE open_tasks SET started = 0 WHERE position = ANY (%s::bigint[]);

-- name: drop_batched
DELETE FROM batched_requests WHERE sample = ANY (%s::text[]);
