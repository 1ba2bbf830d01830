"""Former names of settings, also those of an earlier system (DataDesigner), and their current names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_FIELDS: Final = (
    "Write its fields as settings: multiplicative_decrease_factor, additive_increase_step, "
    "successes_until_increase, cooldown_seconds, startup_ramp_seconds."
)

RENAMED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "reduce_factor": "Write multiplicative_decrease_factor.",
        "additive_increase": "Write additive_increase_step.",
        "success_window": "Write successes_until_increase.",
        "rampup_seconds": "Write startup_ramp_seconds.",
        "ceiling_overshoot": "Leave it out: it never had an effect.",
        "default_queue_wait_timeout_seconds": "Write request_queue_wait_s.",
        "disable_early_shutdown": "Write early_stop, with the opposite value.",
        "throttle": _FIELDS,
        "request_admission": _FIELDS,
        "max_parallel_requests": "Write max_parallel at the model in the roster.",
        "workers": "Write num_evaluation_workers: the setting that --workers gives.",
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
"""Former name of a setting -> its current name. The former one still works."""


def advice_for(name: str) -> str | None:
    """Return what to write instead of a former setting or its variable (`HEADGATE_…`); None if it never was one."""
    return RENAMED.get(name.removeprefix("HEADGATE_").lower())


_OF_AFFINE: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        **{
            name: (name.upper(),)
            for name in (
                "daily_rate_per_env",
                "low_sample_threshold",
                "low_sample_multiplier",
                "num_evaluation_workers",
                "queue_max_size",
                "queue_warning_threshold",
                "queue_pause_threshold",
                "queue_resume_threshold",
                "batch_size",
                "batch_flush_interval",
                "sink_batch_size",
                "sink_max_wait",
            )
        },
        "roster_refresh_s": ("MINER_REFRESH_INTERVAL",),
        "error_pause_s": ("CHUTES_ERROR_PAUSE_DURATION", "CHUTES_ERROR_PAUSE_SECONDS"),
        "error_threshold": ("CHUTES_ERROR_THRESHOLD", "MAX_CONSECUTIVE_ERRORS"),
        "max_pause_s": ("MAX_PAUSE_SECONDS",),
    }
)
"""Setting -> its names in Affine's runner, which are read without prefix, and with `AFFINE_` and `HEADGATE_`."""

_FURTHER: Final[Mapping[str, str]] = MappingProxyType(
    {"s3_access_key_id": "R2_WRITE_ACCESS_KEY_ID", "s3_secret_access_key": "R2_WRITE_SECRET_ACCESS_KEY"}
)


def variables_of(setting: str) -> tuple[str, ...]:
    """Return the environment variables of a setting, in order of precedence."""
    theirs = [prefix + name for prefix in ("HEADGATE_", "AFFINE_", "") for name in _OF_AFFINE.get(setting, ())]
    further = [_FURTHER[setting]] if setting in _FURTHER else []
    return tuple(dict.fromkeys((f"HEADGATE_{setting.upper()}", *theirs, *further)))
