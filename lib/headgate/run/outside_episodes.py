"""How an outside worker handles a job that asks for a sample: it plays the episode and submits how it ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pydantic import ValidationError

from headgate.config import Settings
from headgate.core import Model, SystemClock, sample_task
from headgate.core.errors import HeadgateError, InvalidRosterError
from headgate.core.events import unheard
from headgate.core.flaws import flaws_in_words
from headgate.environments import Registry, converse, registry_of
from headgate.run.endpoints import EndpointChats
from headgate.run.matrix import seeded
from headgate.run.outside_job import SampleOrder, result_of
from headgate.run.request_side import RequestSide
from headgate.run.trials import asking
from headgate.sampling import roster_source

if TYPE_CHECKING:
    from headgate.jobqueue.worker import HeldJob


@dataclass(frozen=True, slots=True)
class SampleJobs:
    """Plays the episodes that jobs ask for. Owned by one worker process.

    A worker with a roster of its own asks models as its roster says, with its keys, and refuses models that are not in
    it. Without a roster it asks the endpoint that the job names, and sends only the job's own key: a client that can
    submit jobs must not be able to have this machine's keys sent to an address of its choice. If the job has a pool,
    the server that the job reserves from it is asked.
    """

    registry: Registry
    models: Mapping[str, Model] | None
    requests: RequestSide
    chats: EndpointChats

    async def __call__(self, job: HeldJob) -> None:
        """Play the episode of a job, and complete the job with how it ended.

        A job that this worker cannot play (not a sample, or its environment or model is missing here) fails at once;
        another worker may be able to play it.
        """
        try:
            order = SampleOrder.model_validate(dict(job.payload))
            model = self._model_of(order, has_server=bool(job.spec.pool))
            environment = self.registry.environment(order.environment)
        except ValidationError as error:
            await job.fail(f"the job asks for no sample: {flaws_in_words(error, SampleOrder)}", retry=False)
            return
        except HeadgateError as error:
            await job.fail(error)
            return
        if job.spec.pool:
            server = await job.reserve_server()  # held until the end of the job
            model = replace(model, base_url=f"http://{server.host}:{server.port}/v1")
        self.requests.register(model)
        task = sample_task(
            campaign=order.campaign,
            model=model.key,
            environment=order.environment,
            sequence=order.sequence,
            data_length=environment.spec.data_length,
            due_at=0.0,
            stage=order.stage,
        )
        chat = self.chats.chat(model, task, unheard)
        result = await converse(environment, order.index, order.seed, chat, model=model.key)
        await job.complete(result_of(result))

    def _model_of(self, order: SampleOrder, *, has_server: bool) -> Model:
        asked = order.model.model
        if self.models is None and (asked.base_url or has_server):
            return asked
        if self.models is None:
            raise InvalidRosterError(
                f"the job names no endpoint of model {asked.key!r}", next_step="Give the worker a roster that does."
            )
        if asked.key not in self.models:
            raise InvalidRosterError(
                f"this worker's roster has no model {asked.key!r}", next_step="Add it to the roster of the worker."
            )
        return seeded(self.models[asked.key], order.model.options.get("seed"))  # as the sample records it


@asynccontextmanager
async def sample_jobs(settings: Settings) -> AsyncIterator[SampleJobs]:
    """Yield the player of jobs' episodes, with the settings' roster if they name one.

    Raises:
        InvalidRosterError: if the roster cannot be read.
    """
    models = {model.key: model for model in await roster_source(settings.roster).load()} if settings.roster else None
    async with asking(settings, SystemClock()) as (requests, chats):
        yield SampleJobs(registry_of(settings), models, requests, chats)
