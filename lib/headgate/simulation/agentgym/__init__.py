"""An AgentGym server over the built-in games, with faults to inject: `python -m headgate.simulation.agentgym`."""

from headgate.simulation.agentgym.server import GAMES, Fault, SimulatedServer

__all__ = ["GAMES", "Fault", "SimulatedServer"]
