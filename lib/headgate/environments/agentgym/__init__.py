"""Environments that AgentGym servers serve: one adapter over HTTP, a table of what differs between their servers."""

from headgate.environments.agentgym.dialects import DIALECTS, Dialect
from headgate.environments.agentgym.served import ServedEnvironment, served_environments

__all__ = ["DIALECTS", "Dialect", "ServedEnvironment", "served_environments"]
