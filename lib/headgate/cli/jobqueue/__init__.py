"""`headgate jobqueue`: serving a job queue, working on it, and looking after it."""
