"""`headgate elastic`: serving an elastic pool, steering it, and replaying loads."""
