"""The settings of task admission and scheduling."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from headgate.config.aliases import own_name


class SchedulingSettings(BaseModel):
    """Which ready task gets a worker, and when a campaign gives up."""

    task_admission: Literal["strict_fair", "bounded_borrow"] = Field(
        "strict_fair",
        validation_alias=own_name("TASK_ADMISSION"),
        description="Whether a group may borrow workers above its share while no peer waits.",
    )
    group_cap: int | None = Field(
        None,
        ge=1,
        validation_alias=own_name("GROUP_CAP"),
        description="Workers that one model may hold while a task of another one could run, under `strict_fair`. "
        "`max_parallel` in the roster is the limit that holds always.",
    )
    borrow_ceiling: int = Field(
        0,
        ge=0,
        validation_alias=own_name("BORROW_CEILING"),
        description="Workers that a group may borrow above its share; 0 takes what the reserve leaves.",
    )
    borrow_reserve: float = Field(
        0.1,
        ge=0,
        lt=1,
        validation_alias=own_name("BORROW_RESERVE"),
        description="Share of the workers that no group may borrow, so that a peer that arrives waits little.",
    )
    target_half_width: float = Field(
        0.0,
        ge=0,
        lt=0.5,
        allow_inf_nan=False,
        validation_alias=own_name("TARGET_HALF_WIDTH"),
        description="Sample a model no further in an environment once its mean is known to within this; 0 samples on. "
        "Instances are then taken in a random order.",
    )
    target_min_tasks: int = Field(
        20,
        ge=1,
        validation_alias=own_name("TARGET_MIN_TASKS"),
        description="Scored tasks that a model has in an environment before `target_half_width` can end it.",
    )
    early_stop: bool = Field(
        True,
        validation_alias=own_name("EARLY_STOP"),
        description="Stop a campaign whose samples fail for good at `shutdown_error_rate`.",
    )
    shutdown_error_rate: float = Field(
        0.5,
        gt=0,
        le=1,
        validation_alias=own_name("SHUTDOWN_ERROR_RATE"),
        description="Share of failed samples in the window that stops the campaign.",
    )
    shutdown_error_window: int = Field(
        10,
        ge=1,
        validation_alias=own_name("SHUTDOWN_ERROR_WINDOW"),
        description="Ended samples over which the error rate is taken.",
    )
