"""Placed elastic workers as written in a pool's file: validated once, here."""

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
"""Default label of workers: training and scoring go before them."""

_DECIDED: Final = frozenset(
    {
        "num_cpus", "num_gpus", "memory", "resources", "accelerator_type", "scheduling_strategy", "placement_group",
        "max_restarts", "max_task_retries", "lifetime", "name", "namespace", "get_if_exists",
    }
)  # fmt: skip
"""Actor options that are set by its placement, or by its life as a worker."""


class _Form(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


ClassName = Annotated[str, AfterValidator(text_like(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", "must be module:Class"))]


class ActorEngines(_Form):
    """Engines of one class, each an actor in its own place: `{kind: ray, class: module:Class, count: 4}`.

    Attributes:
        kind: `ray`.
        class_name: `module:Class`; under `class` in the file.
        resources: what each engine takes, such as `{gpu: 1, cpu: 1}`.
        count: the most engines that may run.
        arguments: keyword arguments of the class.
        options: actor options, such as `runtime_env`, besides those set by its placement.
        slots: requests that each engine runs at once; what the class reports once it is awake counts, too.
        models: the models that it serves.
        worker: base name of its workers, which are numbered; the class name when empty.
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
    """Engines started from weights at the same path on every node: `{serve: vllm, weights: /models/x}`.

    Attributes:
        serve: the program whose command line starts them.
        name: the model's name in requests; the last part of `weights` when empty.
        resources: what each takes; one GPU unless `gpu` says otherwise (`{cpu: 4, gpu: 0}`), for llama.cpp one CPU.
        count: the most engines that may run.
        worker: base name of its workers, which are numbered; the model's name when empty.
    """

    serve: Program
    name: str = ""
    resources: dict[str, Any] = Field(default_factory=dict)
    count: int = Field(default=1, ge=1, le=1_000)
    worker: str = ""

    @property
    def model(self) -> str:
        """The model's name in requests."""
        return self.name or PurePosixPath(self.weights).name or "model"


class WorkerPlacement(_Form):
    """Where the workers run: `placement: {pool: rlhf}`.

    Attributes:
        address: `host:port` of the Ray cluster; None for RAY_ADDRESS, else one running here, else a local one.
        pool: the pool whose quota the workers count against; it is opened if it is not open.
        quota: quota of a pool that is opened; None for everything that the cluster has.
        priority: higher goes first.
        labels: labels for the rules of preemption, besides `role: rollout`.
        resources: what a worker that is not an actor takes.
        start_s: seconds that a start is assumed to take until one has been measured; of equally important work, the
            one that is most expensive to restart is stopped last.
    """

    address: str | None = None
    pool: str = "main"
    quota: dict[str, Any] | None = None
    priority: float = ENGINE_PRIORITY
    labels: dict[str, str] = Field(default_factory=dict)
    resources: dict[str, Any] = Field(default_factory=lambda: {"gpu": 1})
    start_s: float = Field(default=30.0, ge=0, allow_inf_nan=False)

    def demand(self, resources: Mapping[str, Any]) -> Demand:
        """Return a worker's demand.

        Raises:
            InvalidElasticError: if it breaks a rule of placement.
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
        InvalidElasticError: if a setting is unknown or invalid.
    """
    with flaws_raised(WorkerPlacement, InvalidElasticError, "placement: "):
        placement = WorkerPlacement.model_validate(dict(written))
    placement.demand(placement.resources)
    if placement.quota is not None:
        placement.demand(placement.quota)  # the same form, so the same check and error
    return placement


def checked_actors(written: Mapping[str, Any]) -> ActorEngines:
    """Return an entry of `engines` whose engines are actors: of a user's class, or started from weights.

    Raises:
        InvalidElasticError: if a setting is unknown or invalid.
    """
    if "serve" in written:
        with flaws_raised(ServedEngines, InvalidElasticError, "an engine that is served: "):
            return _served(ServedEngines.model_validate(dict(written)))
    with flaws_raised(ActorEngines, InvalidElasticError, "an engine of kind ray: "):
        actors = ActorEngines.model_validate(dict(written))
    if decided := sorted(_DECIDED & actors.options.keys()):
        raise InvalidElasticError(
            f"options of an engine of kind ray must leave {', '.join(decided)} to its place",
            next_step="State what it takes under `resources`.",
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
    """Return engines that are started from weights, as actors; for the arguments see `ActorEngines`."""
    return ActorEngines(
        class_name=f"{EngineProcess.__module__}:{EngineProcess.__name__}",
        worker=worker,
        resources=dict(resources),
        count=count,
        arguments={"launch": launch},
        slots=launch.slots,
        models=(launch.name,),
    )
