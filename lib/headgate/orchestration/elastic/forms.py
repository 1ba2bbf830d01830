"""Placed elastic workers as a pool's file writes them: checked once, here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from headgate.core import ENGINE_PRIORITY, Launch, Program
from headgate.core.errors import InvalidInputError
from headgate.core.flaws import flaws_raised, text_like
from headgate.elastic import InvalidElasticError
from headgate.elastic.engines import EngineProcess
from headgate.orchestration.placement.demand import Demand
from headgate.placement import InvalidPlacementError, checked_request
from headgate.sampling import LaunchForm

ROLE: Final = "rollout"
"""Label of workers that nobody labels otherwise: training and scoring go before it."""

_DECIDED: Final = frozenset(
    {
        "num_cpus", "num_gpus", "memory", "resources", "accelerator_type", "scheduling_strategy", "placement_group",
        "max_restarts", "max_task_retries", "lifetime", "name", "namespace", "get_if_exists",
    }
)  # fmt: skip
"""Options of an actor that its place decides, or its life as a worker."""


class _Form(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


ClassName = Annotated[str, AfterValidator(text_like(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", "must be module:Class"))]


class ActorEngines(_Form):
    """Engines of one class, each an actor in a place of its own: `{kind: ray, class: module:Class, count: 4}`.

    Attributes:
        kind: `ray`.
        class_name: `module:Class`; under `class` in the file.
        resources: what each takes, such as `{gpu: 1, cpu: 1}`.
        count: how many there are at most.
        arguments: of the class.
        options: of the actor, such as `runtime_env`, besides what its place decides.
        slots: requests that each runs at once; what the class tells once it is awake counts, too.
        models: that it serves.
        worker: what its workers are called, numbered; its class when empty.
    """

    kind: Literal["ray"] = "ray"
    class_name: ClassName = Field(alias="class")
    resources: dict[str, Any] = Field(default_factory=lambda: {"cpu": 1})
    count: int = Field(default=1, ge=1, le=1_000)
    arguments: dict[str, Any] = Field(default_factory=dict)
    options: dict[str, Any] = Field(default_factory=dict)
    slots: int | None = Field(default=None, ge=1)
    models: tuple[str, ...] = ()
    worker: str = ""


class ServedEngines(LaunchForm):
    """Engines that are started from weights at the same place on every node: `{serve: vllm, weights: /models/x}`.

    Attributes:
        serve: whose command line starts them.
        name: that requests call the model by; the last part of `weights` when empty.
        resources: what each takes; one GPU unless `gpu` says another number (`{cpu: 4, gpu: 0}`), llama.cpp one CPU.
        count: how many there are at most.
        worker: what its workers are called, numbered; its model when empty.
    """

    serve: Program
    name: str = ""
    resources: dict[str, Any] = Field(default_factory=dict)
    count: int = Field(default=1, ge=1, le=1_000)
    worker: str = ""

    @property
    def model(self) -> str:
        """The name that requests call the model by."""
        return self.name or PurePosixPath(self.weights).name or "model"


class WorkerPlacement(_Form):
    """What workers stand on: `placement: {pool: rlhf}`.

    Attributes:
        address: `host:port` of the Ray cluster; None for RAY_ADDRESS, else one that runs here, else a local one.
        pool: whose quota the workers count against; one that is not open is opened.
        quota: of a pool that is not open; None for all that the cluster has.
        priority: higher goes first.
        labels: what the rules of preemption look at, besides `role: rollout`.
        resources: what a worker takes that is no actor.
        start_s: what a start costs until one was measured; of work that matters as much, the one that is dear to
            start again is stopped last.
    """

    address: str | None = None
    pool: str = "main"
    quota: dict[str, Any] | None = None
    priority: float = ENGINE_PRIORITY
    labels: dict[str, str] = Field(default_factory=dict)
    resources: dict[str, Any] = Field(default_factory=lambda: {"gpu": 1})
    start_s: float = Field(default=30.0, ge=0, allow_inf_nan=False)

    def demand(self, resources: Mapping[str, Any]) -> Demand:
        """Return what a worker asks for.

        Raises:
            InvalidElasticError: it breaks a rule of placement.
        """
        labels = {"role": ROLE, **self.labels}
        asked: dict[str, Any] = {
            "pool": self.pool,
            "resources": dict(resources),
            "priority": self.priority,
            "labels": labels,
        }
        try:
            (bundle,) = checked_request(**asked).bundles
        except InvalidPlacementError as error:
            raise InvalidElasticError(f"placement: {error.message}") from None
        return Demand(
            resources=bundle,
            priority=self.priority,
            labels=labels,
            restart_s=self.start_s,
            min_runtime_s=0.0,
            checkpoints=True,
        )


def checked_placement(written: Mapping[str, Any]) -> WorkerPlacement:
    """Return the section `placement` of a pool's file.

    Raises:
        InvalidElasticError: a setting is unknown or impossible.
    """
    with flaws_raised(WorkerPlacement, InvalidElasticError, "placement: "):
        placement = WorkerPlacement.model_validate(dict(written))
    placement.demand(placement.resources)
    if placement.quota is not None:
        placement.demand(placement.quota)  # written in the same way, and refused with the same sentence
    return placement


def checked_actors(written: Mapping[str, Any]) -> ActorEngines:
    """Return an entry of `engines` whose engines are actors: of a class of the user's, or started from weights.

    Raises:
        InvalidElasticError: a setting is unknown or impossible.
    """
    if "serve" in written:
        with flaws_raised(ServedEngines, InvalidElasticError, "an engine that is served: "):
            return _served(ServedEngines.model_validate(dict(written)))
    with flaws_raised(ActorEngines, InvalidElasticError, "an engine of kind ray: "):
        actors = ActorEngines.model_validate(dict(written))
    if decided := sorted(_DECIDED & actors.options.keys()):
        raise InvalidElasticError(
            f"options of an engine of kind ray must leave {', '.join(decided)} to its place",
            next_step="Say what it takes under `resources`.",
        )
    return actors


def _served(engines: ServedEngines) -> ActorEngines:
    try:
        gpus = int(engines.resources.get("gpu", 0))
        launch = engines.launch(engines.serve, engines.model, gpus=gpus, weights=engines.weights)
    except InvalidInputError as error:
        raise InvalidElasticError(error.message, next_step=error.next_step) from None
    resources = engines.resources or {"cpu": 1} if engines.serve == "llama.cpp" else {"gpu": 1, **engines.resources}
    return launched_engines(launch, resources, engines.count, worker=engines.worker or engines.model)


def launched_engines(launch: Launch, resources: Mapping[str, Any], count: int, *, worker: str) -> ActorEngines:
    """Return engines that are started from weights as actors; arguments as the attributes of `ActorEngines`."""
    return ActorEngines(
        class_name=f"{EngineProcess.__module__}:{EngineProcess.__name__}",
        worker=worker,
        resources=dict(resources),
        count=count,
        arguments={"launch": launch},
        slots=launch.slots,
        models=(launch.name,),
    )
