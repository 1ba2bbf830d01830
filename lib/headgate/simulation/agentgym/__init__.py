"""An AgentGym server with the bundled games behind it, and faults: `python -m headgate.simulation.agentgym`."""

from headgate.simulation.agentgym.server import GAMES, Fault, SimulatedServer

__all__ = ["GAMES", "Fault", "SimulatedServer"]
