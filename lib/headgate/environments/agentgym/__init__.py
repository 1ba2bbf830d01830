"""Environments that AgentGym servers serve: one adapter over HTTP, a table of what differs between their servers."""
