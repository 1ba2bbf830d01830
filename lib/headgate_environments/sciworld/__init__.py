"""`agentgym:sciworld`: ScienceWorld, played in Java virtual machines that this process owns."""

from headgate_environments.sciworld.environment import SciWorldEnvironment, SciWorldEpisode, sciworld

__all__ = ["SciWorldEnvironment", "SciWorldEpisode", "sciworld"]
