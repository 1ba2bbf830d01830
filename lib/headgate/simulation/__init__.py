"""Simulated time, scripted models and stores: whole campaigns in seconds; for users' own tests, too."""

from headgate.simulation import agentgym, engines, providers
from headgate.simulation.doubles import (
    FreeEnvironment,
    MemoryStore,
    Script,
    ScriptedChats,
    ServiceTime,
    free_environments,
    never_fails,
)
from headgate.simulation.postgres import PrivatePostgres
from headgate.simulation.postgres_binaries import PostgresFailedError, PostgresMissingError
from headgate.simulation.virtual_time import EPOCH, LoopClock, VirtualTimeLoop, run_virtual

__all__ = [
    "EPOCH",
    "FreeEnvironment",
    "LoopClock",
    "MemoryStore",
    "PostgresFailedError",
    "PostgresMissingError",
    "PrivatePostgres",
    "Script",
    "ScriptedChats",
    "ServiceTime",
    "VirtualTimeLoop",
    "agentgym",
    "engines",
    "free_environments",
    "never_fails",
    "providers",
    "run_virtual",
]
