"""`headgate:tables`: a question on a table that only a program can answer, with a sandbox to run it in."""

from headgate_environments.tables.environment import Tables, tables

__all__ = ["Tables", "tables"]
