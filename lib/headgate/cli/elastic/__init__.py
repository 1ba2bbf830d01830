"""`headgate elastic`: serving an elastic pool, and steering it."""
