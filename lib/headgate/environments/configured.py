"""From settings to the registry of a campaign: installed environments, served ones, and what processes may take."""

from __future__ import annotations

from headgate.config import Settings
from headgate.environments.agentgym import served_environments
from headgate.environments.apart import ApartLimits
from headgate.environments.registry import Registry, registry_with


def registry_of(settings: Settings) -> Registry:
    """Return the environments that a campaign with `settings` can name; loads and asks none.

    Raises:
        InvalidSettingError: if a server is named for what is no environment of AgentGym's.
    """
    return registry_with(served_environments(settings), apart_limits(settings))


def apart_limits(settings: Settings) -> ApartLimits:
    """Return what the settings allow the processes of environments that run apart."""
    return ApartLimits(
        processes=settings.environment_processes,
        call_s=settings.environment_call_s,
        memory_mib=settings.environment_memory_mib,
    )
