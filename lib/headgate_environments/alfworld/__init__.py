"""`agentgym:alfworld`: household tasks in houses of our own, by the rules of ALFWorld, told in words."""

from headgate_environments.alfworld.environment import AlfworldEnvironment, alfworld

__all__ = ["AlfworldEnvironment", "alfworld"]
