"""Environments that AgentGym servers serve: one adapter over HTTP, a table of what differs between their servers."""

from headgate.environments.agentgym.served import ServedEnvironment, served_environments
from headgate.environments.agentgym.server import DIALECTS, Dialect

__all__ = ["DIALECTS", "Dialect", "ServedEnvironment", "served_environments"]
