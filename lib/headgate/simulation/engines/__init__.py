"""Fake inference engines that speak the real HTTP APIs of SGLang and vLLM, for tests and for trying things out."""

from headgate.simulation.engines.__main__ import run_engine
from headgate.simulation.engines.plan import Api, EnginePlan, FaultScript
from headgate.simulation.engines.serving import FakeEngine, serve_engine

__all__ = ["Api", "EnginePlan", "FakeEngine", "FaultScript", "run_engine", "serve_engine"]
