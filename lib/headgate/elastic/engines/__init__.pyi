from .records import claim as claim, same_for_all as same_for_all
from .engine import (
    Engine as Engine,
    EngineAnswer as EngineAnswer,
    EngineFacts as EngineFacts,
    Outgoing as Outgoing,
)
from .spec import (
    EngineKind as EngineKind,
    EngineSpec as EngineSpec,
    FindActor as FindActor,
    NamedEngine as NamedEngine,
    open_engine as open_engine,
)
from .local import LocalEngine as LocalEngine
from .process import EngineProcess as EngineProcess, command_line as command_line
from .ray_actor import EngineActor as EngineActor, RayActorEngine as RayActorEngine
from .sglang import SGLangEngine as SGLangEngine
from .smg import SmgEngine as SmgEngine
from .vllm import VLLMEngine as VLLMEngine
