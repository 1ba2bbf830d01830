"""`prefect.yaml`, read strictly: Prefect itself ignores unknown keys, so typing errors would go unnoticed."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model, model_validator

from headgate.core import errors
from headgate.core.documents import read_document
from headgate.core.errors import did_you_mean
from headgate.core.flaws import flaws_raised

Steps = list[dict[str, Any]]
"""Prefect looks up a step by its name, which is its only key."""

_TEMPLATE: Final = re.compile(r"\{\{.*\}\}", re.DOTALL)
_OUR_FLOWS: Final = "flows."
_NEXT: Final = "Correct the file; `headgate config check --deployments FILE` checks it."


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ConcurrencyLimit(_Strict):
    """How many runs of a deployment may run at once, and what happens to further ones."""

    limit: Annotated[int, Field(ge=1)]
    collision_strategy: Literal["ENQUEUE", "CANCEL_NEW"] = "ENQUEUE"
    grace_period_seconds: Annotated[int, Field(ge=60, le=86_400)] | None = None


def _seconds_or_text(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("an interval is seconds or a duration such as PT10M")  # noqa: TRY004 - pydantic reports it
    return value


class Schedule(_Strict):
    """When a deployment runs. The slug lets a later deploy change this schedule instead of adding another."""

    slug: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    cron: str | None = None
    interval: Annotated[float | str, BeforeValidator(_seconds_or_text)] | None = None
    rrule: str | None = None
    timezone: str | None = None
    anchor_date: str | None = None
    active: bool = True
    day_or: bool | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    replaces: str | None = None

    @model_validator(mode="after")
    def _has_one_rule(self) -> Self:
        given = [name for name in ("cron", "interval", "rrule") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"a schedule has exactly one of cron, interval and rrule (got {', '.join(given) or 'none'})"
            )
        return self


class WorkPool(_Strict):
    """The work pool and queue that run a deployment."""

    name: Annotated[str, Field(min_length=1)]
    work_queue_name: str | None = None
    job_variables: dict[str, Any] = Field(default_factory=dict)


class Deployment(_Strict):
    """One deployment of a flow."""

    name: Annotated[str, Field(min_length=1)]
    entrypoint: Annotated[str, Field(min_length=1)]
    flow_name: str | None = None
    version: str | None = None
    version_type: str | None = None
    tags: list[str] = Field(default_factory=list)
    description: str | None = None
    schedules: list[Schedule] = Field(default_factory=list)
    paused: bool | None = None
    concurrency_limit: int | ConcurrencyLimit | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    enforce_parameter_schema: bool = True
    work_pool: WorkPool
    build: Steps | None = None
    push: Steps | None = None
    pull: Steps | None = None
    triggers: Steps | None = None


class DeploymentFile(_Strict):
    """A whole `prefect.yaml`. `definitions` is Headgate's addition: a place for YAML anchors, which Prefect ignores."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    name: str | None = None
    prefect_version: str | None = Field(default=None, alias="prefect-version")
    definitions: dict[str, Any] = Field(default_factory=dict)
    build: Steps | None = None
    push: Steps | None = None
    pull: Steps | None = None
    deployments: Annotated[list[Deployment], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        names = [deployment.name for deployment in self.deployments]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise ValueError(f"more than one deployment is named {doubled[0]!r}")
        return self

    def as_yaml(self) -> str:
        """Return the file as Prefect reads it."""
        content = self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"definitions"})
        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


def read_deployment_file(path: Path) -> DeploymentFile:
    """Return the contents of a `prefect.yaml`.

    Raises:
        InvalidInputError: naming every unknown key, with the nearest known one, and every invalid value.
    """
    content = read_document(path, next_step=_NEXT)
    with flaws_raised(DeploymentFile, errors.InvalidInputError, f"{path}: ", next_step=_NEXT):
        return DeploymentFile.model_validate(content)


def checked_deployments(path: Path) -> tuple[str, ...]:
    """Return the names of a file's deployments (`flow/deployment`) after checking that each can be deployed.

    Beyond the file's own form, Headgate's flows that it names must exist and accept the given parameters.

    Raises:
        InvalidInputError: saying what is wrong.
    """
    return tuple(_checked_deployment(deployment) for deployment in read_deployment_file(path).deployments)


def _checked_deployment(deployment: Deployment) -> str:
    if not deployment.entrypoint.startswith(_OUR_FLOWS):
        return f"{deployment.flow_name or deployment.entrypoint}/{deployment.name}"
    module, _, function = deployment.entrypoint.rpartition(".")
    try:
        flow = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError):
        raise errors.InvalidInputError(
            f"deployment {deployment.name!r}: there is no flow {deployment.entrypoint!r}",
            next_step="An entrypoint is package.module.function, such as flows.sampling.sample_environment.",
        ) from None
    known = set(flow.parameters.properties)
    for given in (deployment.parameters, *(schedule.parameters for schedule in deployment.schedules)):
        for name in given:
            if name not in known:
                unknown = f"has no parameter {name!r}{did_you_mean(name, known)}"
                raise errors.InvalidInputError(f"deployment {deployment.name!r}: flow {flow.name} {unknown}")
    missing = sorted(set(flow.parameters.required) - set(deployment.parameters))
    if missing and deployment.schedules:
        raise errors.InvalidInputError(
            f"deployment {deployment.name!r} has a schedule and gives no value for {', '.join(missing)}"
        )
    if deployment.parameters and not _TEMPLATE.search(str(deployment.parameters)):
        _validate_parameters(deployment, flow)
    return f"{flow.name}/{deployment.name}"


def _validate_parameters(deployment: Deployment, flow: Any) -> None:
    """Validate the given values against the flow's own parameter types."""
    known = inspect.signature(flow.fn, eval_str=True).parameters
    fields = {name: (p.annotation, ...) for name, p in known.items() if name in deployment.parameters}
    model = create_model("Parameters", **fields)  # type: ignore[call-overload]  # fields are made at run time
    with flaws_raised(model, errors.InvalidInputError, f"deployment {deployment.name!r}: "):
        model.model_validate(deployment.parameters)
