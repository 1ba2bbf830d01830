"""Sections of the settings: environments, requests, judges, scheduling, telemetry, notices."""

from __future__ import annotations

import json
import shlex
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from headgate.config.budget_settings import EVERYWHERE, Address, Names, Section, ShownAddress, pairs
from headgate.config.renamed import RENAMED
from headgate.core.errors import InvalidSettingError


class EnvironmentSettings(Section):
    """Addresses of AgentGym servers, and limits of environments' calls, episodes and processes."""

    agentgym_servers: Annotated[
        dict[str, str], pairs("servers are written environment=address, comma separated", at_first=True)
    ] = Field(
        default_factory=dict,
        description="AgentGym servers by environment: sciworld=http://127.0.0.1:36001,webshop=http://127.0.0.1:36002. "
        "Each adds an environment that can be sampled.",
    )
    agentgym_timeout_s: float = Field(60.0, gt=0, description="Deadline of one call to an AgentGym server.")
    agentgym_max_rounds: int = Field(
        10, ge=1, le=1_000, description="Maximum number of replies per episode at an AgentGym server."
    )
    environment_processes: int = Field(
        2,
        ge=1,
        le=64,
        description="Maximum number of processes per collection, or per environment that runs apart. An episode goes "
        "to the process with the fewest.",
    )
    environment_call_s: float = Field(
        60.0,
        gt=0,
        description="Deadline of one call to an environment that runs apart, including its creation. The episode then "
        "ends as an environment error; where the call cannot be stopped, its process is ended with all of its "
        "episodes.",
    )
    environment_memory_mib: int = Field(
        2048,
        ge=128,
        description="Maximum resident memory of an environment's process and its children. A process above it gets no "
        "new episodes and is replaced; above 1.5 times as much it is ended at once.",
    )

    sandbox_locks: Annotated[tuple[Literal["calls", "namespaces", "files"], ...], Names] = Field(
        ("calls", "namespaces", "files"),
        description="Locks of the sandbox for programs that models write: calls (always), namespaces, files. Where "
        "the machine lacks one of them, environments that run programs are refused. With fewer, a program can read "
        "what the worker's user can read; every start says so, and `why` of every sample notes it.",
    )

    @field_validator("agentgym_servers")
    @classmethod
    def _are_addresses(cls, value: dict[str, str]) -> dict[str, str]:
        for environment, url in value.items():
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"the server of {environment} must be an http or https address")
        return value


Executor = Annotated[str, Field(pattern=r"^(local|jobqueue(:.+)?)$")]
"""Where an environment is played: `local`, or by a job queue's workers, optionally with a pool of policy servers."""


class ExecutorSettings(Section):
    """Where samples are taken: in this process, or by outside workers through a job queue."""

    executors: Annotated[
        dict[str, Executor], pairs("executors are written environment=local or environment=jobqueue")
    ] = Field(
        default_factory=dict,
        description="Where an environment's episodes run, by its name or a pattern: robot:*=jobqueue hands its "
        "samples to the workers of a job queue, and robot:*=jobqueue:POOL to workers that reserve a policy server of "
        "POOL, in which {model} stands for the model's name. Empty: what the environment says, else this process.",
    )
    jobqueue_url: ShownAddress = Field(
        "", description="Address of the job queue for `executors`. Empty: http://127.0.0.1:8000."
    )
    jobqueue_token: SecretStr = Field(
        SecretStr(""), description="Token for that queue, with the scopes submit and read, for all teams."
    )
    jobqueue_sends_keys: bool = Field(
        False,
        description="Put the API key of a model into its jobs. Everyone who may read or claim jobs can then see it: "
        "leave it off, and give workers a roster of their own.",
    )


Lane = Literal["now", "batch", "auto"]
"""How a request is sent: by itself, or with others in a batch of its provider; `auto` chooses by due time and price."""


_LANES: Final = pairs(
    f"a lane is one word, or environment=lane, comma separated, with {EVERYWHERE}= for all others", or_one=True
)


class LaneSettings(Section):
    """Which requests may wait for a batch of their provider, and how batches are made."""

    lanes: Annotated[dict[str, Lane], _LANES] = Field(
        default_factory=dict,
        description="How requests of environments with one reply go: `now`, in a `batch` of their provider "
        "(/v1/batches, within a day), or `auto`: in a batch where that is known to be cheaper, and the sample's due "
        "day allows it. "
        "One for all, or by environment: affine:*=auto,*=now. A roster's `lane` goes first. Empty: now.",
    )
    judge_lane: Lane = Field("now", description="How questions to the judge go, likewise.")
    lane_batch_requests: int = Field(2_000, ge=1, le=50_000, description="Maximum number of requests in one batch.")
    lane_batch_wait_s: float = Field(
        300.0, gt=0, le=86_400, description="A request waits no longer than this for others to make a batch with."
    )
    lane_poll_s: float = Field(
        15.0,
        gt=0,
        le=3_600,
        description="First interval at which a provider is asked for a batch; later ones grow to 20 times as long.",
    )


class HostSettings(Section):
    """Which environments run apart, where they run, and where models' engines run."""

    episodes_apart: Literal["declared", "all"] = Field(
        "declared",
        description="Which environments run in processes of their own: those that ask for it and all collections, or "
        "`all` of them except those that need a judge.",
    )
    environment_hosts: Literal["local", "ray"] = Field(
        "local",
        description="Where these processes run: on this machine, or in hosts on the nodes of a Ray cluster. There are "
        "as many hosts as the work needs, each in a place of the placement ledger.",
    )
    environment_host_cpus: int = Field(
        1, ge=1, le=256, description="CPUs of one host, and the maximum number of its processes per package."
    )
    environment_seats: int = Field(
        4,
        ge=1,
        le=1_000,
        description="Episodes at once per CPU of a host. Raise it where models answer slowly, so that the CPU serves "
        "other episodes meanwhile.",
    )
    environment_host_priority: float = Field(
        3.0, ge=-1_000, le=1_000, description="Priority of the hosts; work of higher priority preempts them."
    )
    environment_host_role: str = Field("rollout", description="Label `role` of the hosts, for preemption rules.")
    environment_host_idle_s: float = Field(10.0, ge=0, description="A host without work is given back after this time.")
    engine_hosts: Literal["local", "ray"] = Field(
        "local",
        description="Where the engines of models from weights run: on this machine, or on the nodes of a Ray cluster, "
        "each in a place of the placement ledger.",
    )
    ray_address: str = Field(
        "",
        pattern=r"^(|auto|local|[^\s@/]+:\d{1,5})$",
        description="Head of the Ray cluster, host:port. Empty: RAY_ADDRESS, else a cluster on this machine, else one "
        "that is started for the campaign.",
    )
    ray_pool: str = Field(
        "main",
        description="Pool of the placement ledger whose quota these places use; a pool that is not open is opened "
        "with the whole cluster.",
    )


class TelemetrySettings(Section):
    """Where events go besides the log, and how often a campaign reports its health."""

    events_file: str = Field("", description="Write every event to this file as JSON lines.")
    trace_file: str = Field(
        "",
        description="Write a trace for Perfetto to this file when the campaign ends; a name that ends in .gz is "
        "compressed. Without `events_file`, the events are kept beside it, in a file whose name ends in "
        "`.events.jsonl`.",
    )
    health_interval_s: float = Field(
        5.0, gt=0, description="Interval of the events on a campaign's health, while a file of events is written."
    )
    otel_endpoint: ShownAddress = Field(
        "",
        description="Base address of an OpenTelemetry collector (OTLP over HTTP) for spans and metrics. Empty: "
        "OTEL_EXPORTER_OTLP_ENDPOINT, and none without it. Credentials: OTEL_EXPORTER_OTLP_HEADERS. Needs the extra "
        "`otel`.",
    )


def _words_of(value: object) -> object:
    """Return the words of a command given as a command line or a JSON list."""
    if not isinstance(value, str):
        return value
    if not value.lstrip().startswith("["):
        return tuple(shlex.split(value))
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError(f"a command must be a JSON list of texts: {error}") from None


Command = Annotated[tuple[str, ...], BeforeValidator(_words_of)]
"""The words of a command."""


class NoticeSettings(Section):
    """Where notices are sent, and what they watch for."""

    notify_url: Address = Field("", description="Webhook: each notice is posted there as JSON. Empty: none.")
    notify_secret: SecretStr = Field(
        SecretStr(""),
        description="Secret with which the webhook's notices are signed (HMAC-SHA256, as in Standard Webhooks): "
        "`whsec_` and base64, or any text.",
    )
    notify_command: Command = Field(
        (),
        description="Command that is run for each notice and reads it as JSON from its input: as on a command line, "
        "or a JSON list. Empty: none.",
    )
    notify_timeout_s: float = Field(
        10.0, gt=0, le=600, description="A command, or an attempt to post a notice, is given up after this long."
    )
    stalled_after_s: float = Field(
        3_600.0,
        ge=0,
        description="A run counts as stalled if it has accepted no sample for this long although samples are due "
        "that it could take. Set it above the longest episode. 0: never.",
    )
    score_history_days: float = Field(
        30.0,
        ge=0,
        le=365,
        description="Days of stored samples from which a run learns the expected scores and the serving endpoints; "
        "0 disables notices of score drops and endpoint changes.",
    )


class SchedulingSettings(Section):
    """Which ready task gets a worker, and when a campaign gives up."""

    task_admission: Literal["strict_fair", "bounded_borrow"] = Field(
        "strict_fair", description="Whether a group may borrow workers above its share while no peer waits."
    )
    group_cap: int | None = Field(
        None,
        ge=1,
        description="Workers that one model may hold while a task of another model could run, under `strict_fair`. "
        "`max_parallel` in the roster always holds.",
    )
    borrow_ceiling: int = Field(
        0, ge=0, description="Workers that a group may borrow above its share; 0 takes what the reserve leaves."
    )
    borrow_reserve: float = Field(
        0.1,
        ge=0,
        lt=1,
        description="Share of the workers that no group may borrow, so that an arriving group waits only briefly.",
    )
    target_half_width: float = Field(
        0.0,
        ge=0,
        lt=0.5,
        description="Stop sampling a model in an environment once its mean is known to within this; 0 never stops. "
        "Instances are then taken in random order.",
    )
    target_min_tasks: int = Field(
        20, ge=1, description="Scored tasks that a model needs in an environment before `target_half_width` can end it."
    )
    indifference: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Stop sampling a model of `instances` once its order relative to each other model is known, "
        "wherever their means over all instances differ by more than this; 0 takes all instances. Instances are "
        "then taken in random order.",
    )
    allocation: Literal["rates", "ranking"] = Field(
        "rates",
        description="How an environment's daily samples are divided: by rates, or with more for models whose samples "
        "are expected to rank most pairs of models by `indifference`, per token. The total is the same.",
    )
    allocation_uniform: float = Field(
        0.25, gt=0, le=1, description="Share of its rate that every model gets in any case with `allocation: ranking`."
    )
    early_stop: bool = Field(
        True,
        description="Stop a campaign when samples keep failing for good (`shutdown_error_rate`) and no model works.",
    )
    shutdown_error_rate: float = Field(
        0.5, gt=0, le=1, description="Share of failed samples in the window that stops the campaign."
    )
    shutdown_error_window: int = Field(10, ge=1, description="Ended samples over which the error rate is taken.")


class JudgeSettings(Section):
    """Which model judges, how it is asked, and how many answers may wait for it."""

    judge_model: str = Field("", description="Name of the model that judges answers, as its endpoint calls it.")
    judge_url: Address = Field(
        "", description="Base URL of the judge's OpenAI-compatible endpoint, up to and including /v1."
    )
    judge_key: SecretStr = Field(SecretStr(""), description="API key of the judge's endpoint.")
    judge_parallel: int = Field(8, ge=1, le=100_000, description="Maximum number of the judge's requests in flight.")
    judge_options: dict[str, Any] = Field(
        default_factory=dict,
        description='Further fields of each request to the judge, as JSON, e.g. {"temperature": 0}.',
    )
    judgements: int = Field(1, ge=1, le=15, description="How often each answer is judged.")
    rubric: str = Field(
        "", description="YAML file of a rubric that answers are judged by, in place of the environments' own rules."
    )
    max_unjudged: int = Field(
        2_000,
        ge=1,
        le=100_000,
        description="Maximum number of samples in progress, including those that wait for the judge.",
    )

    @field_validator("judge_options", mode="before")
    @classmethod
    def _read_options(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value or "{}")
        except ValueError as error:
            raise ValueError(f"judge_options must be a JSON object: {error}") from None


class AdmissionSettings(Section):
    """How many requests of a model may be in flight, and how the limits adapt to their outcomes."""

    limit_law: Literal["adaptive", "aimd"] = Field(
        "adaptive",
        description="Law of the adaptive limits: the default one, or additive increase and multiplicative decrease.",
    )
    cooldown_seconds: float = Field(
        2.0, gt=0, le=3600, description="Pause of a request key after a 429 without Retry-After (law aimd)."
    )
    multiplicative_decrease_factor: float = Field(
        0.75, gt=0, lt=1, description="Factor on the limit once per congestion episode (law aimd)."
    )
    additive_increase_step: int = Field(1, ge=1, le=100_000, description="Step by which the limit grows (law aimd).")
    successes_until_increase: int = Field(
        25, ge=1, le=1_000_000, description="Consecutive successes after which the limit grows (law aimd)."
    )
    startup_ramp_seconds: float = Field(
        0.0, ge=0, le=86_400, description="Time over which a new limit rises from 1 to its start value; 0 starts there."
    )
    request_queue_wait_s: float | None = Field(
        None,
        ge=0,
        description="A request that waited this long for admission is denied. Empty: it waits as long as its episode.",
    )
    retry_budget: float = Field(
        0.2, ge=0, le=1, description="Maximum share of an endpoint's requests that may be retries after failures."
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_former_names(cls, values: object) -> object:
        for name in values if isinstance(values, dict) else ():
            if name in RENAMED:
                raise InvalidSettingError(f"there is no setting {name!r}", next_step=RENAMED[name])
        return values
