"""`headgate jobqueue`: serve a job queue, work on it, and administer it."""
