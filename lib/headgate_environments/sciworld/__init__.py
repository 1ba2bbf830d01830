"""`agentgym:sciworld`: ScienceWorld in this process's own Java virtual machines."""

from headgate_environments.sciworld.environment import SciWorldEnvironment, SciWorldEpisode, sciworld

__all__ = ["SciWorldEnvironment", "SciWorldEpisode", "sciworld"]
