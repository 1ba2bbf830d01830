-- Tokens, for SQLite and PostgreSQL alike. One statement per name; parameters are named (`:name`).

-- name: schema
CREATE TABLE IF NOT EXISTS tokens (
  token_id TEXT PRIMARY KEY, name TEXT NOT NULL, scopes TEXT NOT NULL, teams TEXT, worker TEXT,
  digest TEXT NOT NULL, created_at DOUBLE PRECISION NOT NULL, expires_at DOUBLE PRECISION,
  revoked_at DOUBLE PRECISION, rotated_at DOUBLE PRECISION,
  previous_digest TEXT NOT NULL, previous_until DOUBLE PRECISION NOT NULL, pools TEXT, most_priority BIGINT
);
CREATE TABLE IF NOT EXISTS token_schema (version INTEGER PRIMARY KEY);

-- name: bind_to_pools
-- Version 2. Older tokens bound to teams get what new ones have by default.
ALTER TABLE tokens ADD COLUMN pools TEXT;
ALTER TABLE tokens ADD COLUMN most_priority BIGINT;
UPDATE tokens SET pools = teams, most_priority = 0 WHERE teams IS NOT NULL;

-- name: note_version
INSERT INTO token_schema (version) VALUES (:version) ON CONFLICT (version) DO NOTHING;

-- name: version
SELECT coalesce(max(version), 0) FROM token_schema;

-- name: tokens
SELECT token_id, name, scopes, teams, worker, digest, created_at, expires_at, revoked_at, rotated_at,
  previous_digest, previous_until, pools, most_priority
FROM tokens ORDER BY created_at, token_id;

-- name: token
SELECT token_id, name, scopes, teams, worker, digest, created_at, expires_at, revoked_at, rotated_at,
  previous_digest, previous_until, pools, most_priority
FROM tokens WHERE token_id = :token_id;

-- name: add
INSERT INTO tokens (token_id, name, scopes, teams, worker, digest, created_at, expires_at, revoked_at, rotated_at,
  previous_digest, previous_until, pools, most_priority)
VALUES (:token_id, :name, :scopes, :teams, :worker, :digest, :created_at, :expires_at, :revoked_at, :rotated_at,
  :previous_digest, :previous_until, :pools, :most_priority);

-- name: change
UPDATE tokens SET name = :name, scopes = :scopes, teams = :teams, worker = :worker, digest = :digest,
  created_at = :created_at, expires_at = :expires_at, revoked_at = :revoked_at, rotated_at = :rotated_at,
  previous_digest = :previous_digest, previous_until = :previous_until, pools = :pools, most_priority = :most_priority
WHERE token_id = :token_id;

-- name: forget
DELETE FROM tokens WHERE revoked_at < :before OR expires_at < :before;

-- name: sqlite_is_made
SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'token_schema';

-- name: postgres_is_made
SELECT count(*) FROM pg_catalog.pg_tables WHERE schemaname = 'headgate_jobqueue' AND tablename = 'token_schema';

-- name: postgres_session
SET search_path TO headgate_jobqueue;
SET statement_timeout TO '5s';
SET lock_timeout TO '5s';

-- name: postgres_make_alone
SELECT pg_advisory_xact_lock(hashtext('headgate_jobqueue.tokens'));

-- name: postgres_namespace
CREATE SCHEMA IF NOT EXISTS headgate_jobqueue;

-- name: postgres_change_alone
LOCK TABLE tokens IN SHARE ROW EXCLUSIVE MODE;
