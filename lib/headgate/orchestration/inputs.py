"""Converts the arguments of a flow run - block names, numbers, further settings - into what the library takes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from blocks import BlockRoster, JobQueueServer, JudgeRubric, ModelEndpoint, RayCluster, loaded_block
from blocks import ReportStore as ReportStoreBlock
from blocks import SampleStore as SampleStoreBlock
from headgate.config import Settings, load_settings
from headgate.core import Model, errors
from headgate.environments.rubric import Rubric
from headgate.run import JUDGE_PREFIX, HostCluster, judge_of, models_at_hand
from headgate.sampling import Roster, RosterSource
from headgate.storage import SampleStore, sample_store


@dataclass(frozen=True, slots=True)
class SamplingOrder:
    """What a flow run should sample.

    The fields are the parameters that flows share, see `sample_environment`: `roster`, `store`, `limits`, `reports`,
    `judge`, `cluster` and `jobqueue` name blocks. Fields that are empty or None leave the choice to the settings.
    """

    environments: tuple[str, ...] = ()
    campaign: str = ""
    roster: str = ""
    store: str = ""
    limits: str = ""
    reports: str = ""
    judge: str = ""
    cluster: str = ""
    models: tuple[str, ...] = ()
    rate_per_day: float | None = None
    workers: int | None = None
    repeats: int | None = None
    executors: str = ""
    jobqueue: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Mapping[str, Any], **own: Any) -> Self:
        """Return the order from a flow's parameters: those named like the fields, overridden by `own`."""
        named = {one.name: given[one.name] for one in fields(cls) if one.name in given} | own
        chosen: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in named.items()}
        return cls(**chosen)


def settings_of(order: SamplingOrder, environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings of an order: its own values over the process's variables, the file and the defaults.

    Raises:
        InvalidSettingError: if a setting is unknown, invalid, or given twice.
    """
    named: dict[str, Any] = {
        "environments": order.environments or None,
        "campaign": order.campaign or None,
        "daily_rate_per_env": order.rate_per_day,
        "num_evaluation_workers": order.workers,
        "repeats": order.repeats,
        "executors": order.executors or None,
        "environment_hosts": "ray" if order.cluster else None,
    }
    given = {name: value for name, value in named.items() if value is not None}
    refuse_twice_given(given, order.settings)
    settings = load_settings(given | dict(order.settings), environ=environ).settings
    # A rate given for this run must win over the process's rates by environment.
    return settings.model_copy(update={"rates": {}}) if order.rate_per_day is not None else settings


async def with_queue(settings: Settings, name: str) -> Settings:
    """Return settings that use the outside workers of a JobQueueServer block; unchanged if no block is named.

    Raises:
        InvalidInputError: if there is no such block.
    """
    if not name:
        return settings
    block = await loaded_block(JobQueueServer, name)
    return settings.model_copy(update={"jobqueue_url": block.url, "jobqueue_token": block.token})


def refuse_twice_given(given: Collection[str], settings: Mapping[str, Any]) -> None:
    """Raise `InvalidSettingError` for a setting given both by its own parameter and in `settings`."""
    for name in given:
        if name in settings:
            raise errors.InvalidSettingError(
                f"setting {name!r} is given twice: by its own parameter and in `settings`",
                next_step="Leave one of the two out.",
            )


@asynccontextmanager
async def roster_for(order: SamplingOrder, settings: Settings) -> AsyncIterator[RosterSource]:
    """Yield the source of the models; the roster `baselines` is served until the context ends.

    Raises:
        InvalidSettingError: if a server is named for an environment that is not one of AgentGym's.
    """
    given: AbstractAsyncContextManager[RosterSource]
    given = nullcontext(BlockRoster(order.roster)) if order.roster else models_at_hand(settings)
    async with given as source:
        yield ChosenModels(source, order.models) if order.models else source


async def store_for(name: str, settings: Settings) -> SampleStore:
    """Return the sample store of a block, or that of the settings when no block is named.

    Raises:
        InvalidInputError: if there is no such block.
    """
    return (await loaded_block(SampleStoreBlock, name)).open() if name else sample_store(settings)


async def cluster_for(name: str, settings: Settings) -> HostCluster | None:
    """Return the cluster of a RayCluster block with the pool that the settings name; None if no block is named.

    Raises:
        InvalidInputError: if there is no such block.
    """
    if not name:
        return None
    block = await loaded_block(RayCluster, name)
    quotas = {spec.name: spec.model_dump()["quota"] for spec in block.pool_specs()}
    return HostCluster(block.address, settings.ray_pool, quotas.get(settings.ray_pool, {}), block.journal)


async def judge_for(block: str, settings: Settings) -> Model:
    """Return the judge of a ModelEndpoint block, or the settings' judge if no block is named.

    Raises:
        InvalidInputError: if there is no such block, or neither it nor the settings name the judge's model.
    """
    if not block:
        return judge_of(settings)
    endpoint = await loaded_block(ModelEndpoint, block)
    name = settings.judge_model or endpoint.served_name
    if not name:
        raise errors.InvalidSettingError(
            f"the block {block!r} names no model, and neither does judge_model",
            next_step="Set the served name in the block, or the parameter judge_model.",
        )
    return endpoint.model(f"{JUDGE_PREFIX}{name}", served_name=name)


async def rubric_block(name: str) -> Rubric | None:
    """Return the rubric of a JudgeRubric block, or None if no block is named.

    Raises:
        InvalidInputError: if there is no such block.
    """
    return (await loaded_block(JudgeRubric, name)).rubric() if name else None


def with_judge(sampling: SamplingOrder, judge_model: str, judgements: int | None) -> SamplingOrder:
    """Return the sampling order with the judge's parameters added to its settings.

    Raises:
        InvalidSettingError: if one of them is given twice.
    """
    asked = {"judge_model": judge_model or None, "judgements": judgements}
    given = {name: value for name, value in asked.items() if value is not None}
    refuse_twice_given(given, sampling.settings)
    return replace(sampling, settings={**sampling.settings, **given})


async def report_store_for(name: str) -> ReportStoreBlock:
    """Return the report store of a block, or a folder beside the samples if no block is named.

    Raises:
        InvalidInputError: if there is no such block.
    """
    return await loaded_block(ReportStoreBlock, name) if name else ReportStoreBlock()


class ChosenModels:
    """Some models of a roster, by name or by `name@revision`. Implements `RosterSource`."""

    def __init__(self, source: RosterSource, names: Collection[str]) -> None:
        self._source = source
        self._names = names

    async def load(self) -> Roster:
        """Return the chosen models of the roster as it is now.

        Raises:
            InvalidRosterError: if the roster has no model of a given name.
        """
        return (await self._source.load()).chosen(self._names)
