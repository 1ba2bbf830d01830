CREATE TABLE migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at REAL NOT NULL);

CREATE TABLE jobs (
  -- INT, not INTEGER: that would make it the rowid, which SQLite leaves out when it searches by a row of columns.
  seq INT PRIMARY KEY NOT NULL, job_id TEXT NOT NULL UNIQUE,
  team TEXT NOT NULL, task TEXT NOT NULL, instance TEXT NOT NULL, pool TEXT NOT NULL, resource_type TEXT NOT NULL,
  payload TEXT NOT NULL, descending_priority INTEGER NOT NULL, max_attempts INTEGER NOT NULL, submitted_at REAL NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('pending', 'in_progress', 'done', 'dead')), epoch INTEGER NOT NULL, failures INTEGER NOT NULL, lease_id TEXT NOT NULL, worker TEXT NOT NULL,
  lease_s REAL NOT NULL, claimed_at REAL NOT NULL, finished_at REAL NOT NULL, last_error TEXT NOT NULL,
  result TEXT NOT NULL, result_ref TEXT NOT NULL, checksum TEXT NOT NULL,
  -- Entry of the history at which it was completed, -1 before.
  completed_entry INTEGER NOT NULL
);
CREATE INDEX jobs_pending ON jobs (team, pool, task, descending_priority, failures, seq) WHERE state = 'pending';
CREATE INDEX jobs_in_progress ON jobs (seq) WHERE state = 'in_progress';
CREATE INDEX jobs_dead ON jobs (seq) WHERE state = 'dead';
CREATE INDEX jobs_of_team ON jobs (team, seq);
CREATE INDEX jobs_completed ON jobs (completed_entry) WHERE completed_entry >= 0;
CREATE INDEX jobs_completed_of_team ON jobs (team, completed_entry) WHERE completed_entry >= 0;

CREATE TABLE resources (
  pool TEXT NOT NULL, number INTEGER NOT NULL, host TEXT NOT NULL, port INTEGER NOT NULL,
  -- Tasks, as JSON arrays.
  compatible_task TEXT NOT NULL, not_compatible_task TEXT NOT NULL, body TEXT NOT NULL, state TEXT NOT NULL,
  epoch INTEGER NOT NULL, lease_id TEXT NOT NULL, job_id TEXT NOT NULL, worker TEXT NOT NULL, lease_s REAL NOT NULL,
  reserved_at REAL NOT NULL, note TEXT NOT NULL,
  PRIMARY KEY (pool, number)
) WITHOUT ROWID;

-- A server's number is never given again, though the server is gone.
CREATE TABLE pools (pool TEXT PRIMARY KEY, next_index INTEGER NOT NULL) WITHOUT ROWID;

CREATE TABLE history (
  entry INTEGER PRIMARY KEY, at REAL NOT NULL, what TEXT NOT NULL, job_id TEXT NOT NULL, epoch INTEGER NOT NULL,
  lease_id TEXT NOT NULL, worker TEXT NOT NULL, resource_id TEXT NOT NULL, note TEXT NOT NULL
);
CREATE INDEX history_of_job ON history (job_id, entry);
CREATE INDEX history_of_kind ON history (what, entry);

CREATE TABLE replies (
  key TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, status INTEGER NOT NULL, body TEXT NOT NULL, at REAL NOT NULL
);
CREATE INDEX replies_by_age ON replies (at);
