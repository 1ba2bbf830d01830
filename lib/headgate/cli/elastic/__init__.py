"""`headgate elastic`: serve an elastic pool, and steer it."""
