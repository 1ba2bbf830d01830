"""`headgate placement`: run work on a Ray cluster by priority, and administer it."""
