"""Settings that have, or had in an earlier system (DataDesigner), another name, and what each is called here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from pydantic import AliasChoices

RENAMED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "reduce_factor": "write multiplicative_decrease_factor",
        "additive_increase": "write additive_increase_step",
        "success_window": "write successes_until_increase",
        "rampup_seconds": "write startup_ramp_seconds",
        "ceiling_overshoot": "leave it out: it never had an effect",
        "default_queue_wait_timeout_seconds": "write request_queue_wait_s",
        "disable_early_shutdown": "write early_stop, with the opposite value",
        "throttle": (
            "write its fields as settings: multiplicative_decrease_factor, additive_increase_step, "
            "successes_until_increase, cooldown_seconds, startup_ramp_seconds"
        ),
        "request_admission": (
            "write its fields as settings: multiplicative_decrease_factor, additive_increase_step, "
            "successes_until_increase, cooldown_seconds, startup_ramp_seconds"
        ),
        "max_parallel_requests": "write max_parallel at the model in the roster",
    }
)
"""Former name -> what to write instead."""


FORMER_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "chutes_error_pause_duration": "error_pause_s",
        "chutes_error_threshold": "error_threshold",
        "miner_refresh_interval": "roster_refresh_s",
    }
)
"""Former name of a setting -> its name now. The former one still works."""


def advice_for(name: str) -> str | None:
    """Return what to write in place of a former setting or of its variable (`HEADGATE_…`); None if it never was one."""
    return RENAMED.get(name.removeprefix("HEADGATE_").lower())


def affine_names(name: str, *others: str) -> AliasChoices:
    """Return the names of a setting of Affine's runner: `HEADGATE_X`, then `AFFINE_X`, then its bare name."""
    bare = (name, *others)
    return AliasChoices(*(prefix + n for prefix in ("HEADGATE_", "AFFINE_", "") for n in bare))


def own_and_affine_names(own: str, *affine: str) -> AliasChoices:
    """Return the names of a setting of Affine's runner that has a name of our own: that first, then the others."""
    return AliasChoices("HEADGATE_" + own, *affine_names(*affine).choices)


def own_name(name: str) -> AliasChoices:
    """Return the one name of a setting of our own."""
    return AliasChoices("HEADGATE_" + name)
