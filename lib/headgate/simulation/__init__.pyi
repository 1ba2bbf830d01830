from . import agentgym as agentgym, engines as engines
from .doubles import (
    FreeEnvironment as FreeEnvironment,
    MemoryStore as MemoryStore,
    Script as Script,
    ScriptedChats as ScriptedChats,
    ServiceTime as ServiceTime,
    free_environments as free_environments,
    never_fails as never_fails,
)
from .virtual_time import EPOCH as EPOCH, LoopClock as LoopClock, run_virtual as run_virtual
