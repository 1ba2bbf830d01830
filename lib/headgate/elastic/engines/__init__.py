"""Engines: one API over SGLang, vLLM, Ray actors, and the workers of an SGLang gateway."""

from headgate.elastic.engines.claims import claim, same_for_all
from headgate.elastic.engines.engine import Engine, EngineAnswer, EngineFacts, Outgoing
from headgate.elastic.engines.opening import EngineKind, EngineSpec, FindActor, open_engine
from headgate.elastic.engines.ray_actor import EngineActor, RayActorEngine
from headgate.elastic.engines.sglang import SGLangEngine
from headgate.elastic.engines.smg import RoutedEngine, SmgEngine
from headgate.elastic.engines.vllm import VLLMEngine

__all__ = [
    "Engine",
    "EngineActor",
    "EngineAnswer",
    "EngineFacts",
    "EngineKind",
    "EngineSpec",
    "FindActor",
    "Outgoing",
    "RayActorEngine",
    "RoutedEngine",
    "SGLangEngine",
    "SmgEngine",
    "VLLMEngine",
    "claim",
    "open_engine",
    "same_for_all",
]
