"""`agentgym:alfworld`: household tasks in a text world, in houses of our own and by ALFWorld's rules."""

from headgate_environments.alfworld.environment import AlfworldEnvironment, alfworld

__all__ = ["AlfworldEnvironment", "alfworld"]
