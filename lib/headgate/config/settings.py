"""Every setting of a campaign: its names, default, bounds and meaning."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PrivateAttr,
    SecretStr,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from headgate.config.budget_settings import Address, BudgetSettings, Names, ShownAddress, pairs
from headgate.config.renamed import FORMER_NAMES
from headgate.config.sections import (
    AdmissionSettings,
    EnvironmentSettings,
    ExecutorSettings,
    HostSettings,
    JudgeSettings,
    LaneSettings,
    NoticeSettings,
    SchedulingSettings,
    TelemetrySettings,
)
from headgate.core import checked_name
from headgate.core.errors import InvalidNameError
from headgate.durable.databases import PostgresAddress, place_of

MAX_DAILY_RATE: Final = 8_640_000.0
"""One sample every 10 ms per model and environment; a higher rate is a typo."""


def checked_rate(value: float) -> float:
    """Return a valid daily rate.

    Raises:
        ValueError: unless 0 < rate <= `MAX_DAILY_RATE`.
    """
    if not math.isfinite(value) or not 0 < value <= MAX_DAILY_RATE:
        raise ValueError(f"a daily rate must be > 0 and <= {MAX_DAILY_RATE:g} samples per day (got {value:g})")
    return value


DailyRate = Annotated[float, Field(allow_inf_nan=True), AfterValidator(checked_rate)]  # the check refuses inf and nan


def _journal_place(value: object) -> object:
    if not isinstance(value, str) or "://" not in value:
        return value
    if not value.startswith(("postgresql://", "postgres://")):
        raise ValueError("a journal must be in a folder, or at a postgresql:// address")
    return place_of(value)


JournalPlace = Annotated[Path | InstanceOf[PostgresAddress], BeforeValidator(_journal_place)]


class Settings(
    AdmissionSettings,
    SchedulingSettings,
    JudgeSettings,
    LaneSettings,
    EnvironmentSettings,
    ExecutorSettings,
    HostSettings,
    BudgetSettings,
    TelemetrySettings,
    NoticeSettings,
):
    """The settings of one campaign. Durations in seconds, rates per day, sizes in tasks or samples."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    _origins: Mapping[str, str] = PrivateAttr(default_factory=dict)

    # What is sampled, and where it goes.
    campaign: str = Field("main", description="Name of the campaign, part of every task's identity.")
    roster: str = Field(
        "",
        description="Roster of models: a YAML or JSON file, an http(s) URL, or `baselines` for the built-in baseline "
        "agents. Empty: the models of OPENAI_BASE_URL.",
    )
    environments: Annotated[tuple[str, ...], Names] = Field(
        (), description="Environments to sample, comma separated. Empty: all that are installed."
    )
    instances: int | None = Field(
        None,
        ge=1,
        description="Run this many tasks per model and environment once, instead of sampling by rates. Empty: by "
        "rates.",
    )
    repeats: int = Field(
        1,
        ge=1,
        le=10_000,
        description="Take this many samples of each task of `instances`, with another seed each: for pass@k and maj@k.",
    )
    rates: Annotated[dict[str, DailyRate], pairs("rates are written environment=samples_per_day, comma separated")] = (
        Field(
            default_factory=dict,
            description="Samples per model and day by environment, in place of its own rate: "
            "affine:sat=100,affine:abd=50. Patterns of names work, too, and the longest that matches counts: "
            "reasoning-gym:*=20,*=50.",
        )
    )
    store: str = Field(".headgate/samples", min_length=1, description="Sample store: a folder, or s3://bucket/prefix.")
    journal: JournalPlace = Field(
        Path(".headgate/journal"),
        description="Journal: open tasks, spooled samples and due times of the campaign. A folder of this machine, or "
        "postgresql://USER:PASSWORD@HOST:PORT/DATABASE for one that machines share.",
    )
    journal_lease_s: float = Field(
        30.0,
        ge=1,
        le=3_600,
        description="A process that shares a journal in PostgreSQL counts as dead after this long without a sign of "
        "life; others take over its tasks.",
    )
    s3_endpoint_url: ShownAddress = Field(
        "", description="Endpoint of an S3-compatible service such as R2 or MinIO. Empty: AWS."
    )
    s3_access_key_id: SecretStr = Field(
        SecretStr(""), description="Access key of the S3 store. Empty: the usual AWS sources."
    )
    s3_secret_access_key: SecretStr = Field(SecretStr(""), description="Secret key of the S3 store.")

    # Rates (core parameters of Affine's runner).
    daily_rate_per_env: DailyRate | None = Field(
        None,
        description="Deprecated: one rate for all environments; `rates` and the environments' own rates replace it.",
    )
    low_sample_threshold: int = Field(
        200, ge=0, description="A model with fewer samples than this over 24 h, all environments together, is boosted."
    )
    low_sample_multiplier: float = Field(3.0, ge=1, le=100, description="Factor on the rates of a boosted model.")
    catch_up_horizon_s: float = Field(
        3600.0,
        ge=0,
        description="Due times missed by more than this are skipped; more recent ones are made up at no more than "
        "twice the rate.",
    )

    task_provider: Address = Field(
        "", description="Take tasks from this server (http or https) in place of daily rates. Empty: by rates."
    )
    task_provider_poll_s: float = Field(30.0, gt=0, description="How often the task provider is asked.")

    # Workers and queue.
    num_evaluation_workers: int = Field(20, ge=1, le=100_000, description="Maximum number of episodes in progress.")
    queue_max_size: int = Field(100_000, ge=1, description="Hard cap of the ready queue.")
    queue_warning_threshold: int = Field(
        5_000, ge=1, description="A longer queue causes a warning, at most once a minute."
    )
    queue_pause_threshold: int = Field(8_000, ge=1, description="At this length samplers pause.")
    queue_resume_threshold: int = Field(3_000, ge=0, description="At this length paused samplers resume.")
    batch_size: int = Field(50, ge=1, description="Tasks that a sampler buffers before it enqueues them.")
    batch_flush_interval: float = Field(
        30.0, ge=0, description="A buffered task waits no longer than this, and not at all while a worker is free."
    )

    # Timing.
    roster_refresh_s: float = Field(600.0, gt=0, description="How often the roster is read again.")
    sink_batch_size: int = Field(300, ge=1, le=1_000_000, description="Samples in one stored batch, of at most 32 MB.")
    sink_max_wait: float = Field(
        300.0, gt=0, description="A spooled sample waits no longer than this for its batch to be stored."
    )
    error_pause_s: float = Field(
        900.0, gt=0, description="First pause of a model after consecutive service errors; doubles per further pause."
    )
    error_threshold: int = Field(3, ge=1, description="Consecutive service errors that pause a model.")
    max_pause_s: float = Field(86_400.0, gt=0, description="Longest pause of a model.")
    drain_timeout_s: float = Field(
        20.0,
        ge=0,
        description="How long a stopping campaign waits for episodes in progress before it gives their tasks back.",
    )
    status_interval_s: float = Field(30.0, gt=0, description="How often the status line is written.")

    # Requests.
    request_timeout_s: float = Field(120.0, gt=0, description="Deadline of one attempt of a chat request.")
    request_attempts: int = Field(
        4,
        ge=1,
        le=20,
        description="Failed attempts after which a chat request is given up. A refusal for its rate (429) is waited "
        "for and does not count.",
    )
    streaming: bool = Field(False, description="Ask for streamed answers.")
    keep_conversations: bool = Field(True, description="Store the messages of each episode with its sample.")
    conversation_days: float | None = Field(
        None,
        gt=0,
        description="Each compaction deletes conversations older than this and keeps their samples. Not set: never.",
    )

    # Monitoring.
    enable_monitoring: bool = Field(False, description="Serve the monitoring API during a campaign.")
    monitor_host: str = Field(
        "127.0.0.1", description="Address of the monitoring API; beyond loopback a token is required."
    )
    monitor_port: int = Field(8765, ge=0, le=65_535, description="Port of the monitoring API; 0 takes a free one.")
    monitor_advertised_host: str = Field(
        "",
        max_length=120,
        pattern=r"^[A-Za-z0-9._:-]*$",
        description="Host by which console and commands call the monitoring API: runs write it in their journal. "
        "Empty: `monitor_host`, or the name of the machine where that is 0.0.0.0 or ::.",
    )
    monitor_token: SecretStr = Field(SecretStr(""), description="Bearer token of the monitoring API.")
    monitor_tokens: str = Field(
        "",
        description="Database of further tokens with the scope `read`, such as sqlite:///.headgate/tokens.db; "
        "`headgate jobqueue token create`, `rotate` and `revoke` change it while a campaign runs.",
    )

    # The console.
    console_host: str = Field("127.0.0.1", description="Address of the console; beyond loopback a token is required.")
    console_port: int = Field(8770, ge=0, le=65_535, description="Port of the console; 0 takes a free one.")
    console_hosts: Annotated[tuple[str, ...], Names] = Field(
        (),
        description="Hosts beside this machine, such as node-*.internal,10.0.*.*, that console and commands may ask "
        "with `monitor_token` where a journal says that a run is there. `*` is any characters but dots and colons.",
    )
    console_token: SecretStr = Field(
        SecretStr(""),
        description="Token to sign in to the console with, which allows everything. Those of `monitor_tokens` allow "
        "what their scopes say: `read` to look, `steer` to change things.",
    )

    # TLS of every server of Headgate.
    tls_certificate: str = Field("", description="PEM file of the certificate to serve HTTPS with.")
    tls_key: str = Field("", description="PEM file of its private key, unless that is in the same file.")

    @model_validator(mode="before")
    @classmethod
    def _present_names(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {FORMER_NAMES.get(name, name): value for name, value in values.items()}

    @field_validator("campaign")
    @classmethod
    def _usable_name(cls, value: str) -> str:
        try:
            return checked_name(value, "campaign")
        except InvalidNameError as error:
            raise ValueError(str(error)) from None

    @model_validator(mode="after")
    def _orders(self) -> Self:
        if not self.queue_resume_threshold < self.queue_pause_threshold <= self.queue_max_size:
            raise ValueError(
                "thresholds must keep queue_resume_threshold < queue_pause_threshold <= queue_max_size "
                f"(got {self.queue_resume_threshold}, {self.queue_pause_threshold}, {self.queue_max_size})"
            )
        if self.group_cap is not None and self.task_admission != "strict_fair":
            raise ValueError(
                f"group_cap belongs to strict_fair; {self.task_admission} has shares by weight, and borrow_ceiling "
                f"bounds what a model holds above its own (got group_cap {self.group_cap})"
            )
        if self.indifference and self.target_half_width:
            raise ValueError(
                f"a run stops by indifference or by target_half_width (got {self.indifference:g}, "
                f"{self.target_half_width:g}): a model whose mean is known may still have to be compared"
            )
        if self.allocation == "ranking" and not self.indifference:
            raise ValueError("allocation: ranking needs an indifference, a difference of means such as 0.02 (got 0)")
        if self.error_pause_s > self.max_pause_s:
            raise ValueError(f"error_pause_s must be <= max_pause_s (got {self.error_pause_s:g}, {self.max_pause_s:g})")
        return self

    def with_origins(self, origins: Mapping[str, str]) -> Self:
        """Return a copy of these settings with the origins of their values."""
        known = self.model_copy()
        known._origins = dict(origins)  # noqa: SLF001 - a copy of this class
        return known

    def origin_of(self, name: str) -> str:
        """Return where a value came from: `flag`, `env NAME`, `file PATH` or `default`.

        For settings that a program constructed, only whether it gave the value is known.
        """
        return self._origins.get(name, "flag" if name in self.model_fields_set else "default")


def setting_fields() -> dict[str, FieldInfo]:
    """Return every setting by its name, in the order of the documentation."""
    return dict(Settings.model_fields)
