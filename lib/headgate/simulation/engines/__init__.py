"""Fake inference engines with the real HTTP APIs of SGLang and vLLM, for tests and for trying things out."""

from headgate.simulation.engines.plan import Api, EnginePlan
from headgate.simulation.engines.serving import FakeEngine, run_engine, serve_engine

__all__ = ["Api", "EnginePlan", "FakeEngine", "run_engine", "serve_engine"]
