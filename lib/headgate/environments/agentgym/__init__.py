"""Environments on AgentGym servers: one HTTP adapter, and a table of the differences between the servers."""
