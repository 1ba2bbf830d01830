"""One worker of a worker group, as the pool's hands see an engine."""

from __future__ import annotations

from headgate.elastic.engines.attempts import Attempts
from headgate.elastic.engines.engine import EngineFacts
from headgate.elastic.errors import EngineError
from headgate.elastic.verl.worker_group import GroupCalls
from headgate.elastic.worker import EngineLoad


class GroupEngine:
    """A worker that only its group can reach. The group sends requests itself.

    Whether it sleeps is our own record: groups written for the seed tell `active` of any worker.
    """

    kind = "verl"

    def __init__(self, worker_id: int, calls: GroupCalls, attempts: Attempts) -> None:
        self._worker_id = worker_id
        self._calls = calls
        self._attempts = attempts
        self._is_asleep = False
        self._was_told_of = False

    @property
    def name(self) -> str:
        """The worker's number."""
        return str(self._worker_id)

    async def check(self) -> EngineFacts:
        """Return what is known of it: nothing."""
        return EngineFacts((), is_asleep=self._is_asleep)

    async def load(self) -> EngineLoad:
        """Return what its group tells; a group that never told of this worker leaves the count to the pool."""
        active = await self._calls.active_requests()
        if self._worker_id in active:
            self._was_told_of = True
        elif self._was_told_of:
            raise EngineError(f"get_worker_status tells no more of worker {self._worker_id}")
        return EngineLoad(running=active.get(self._worker_id, 0), is_asleep=self._is_asleep)

    async def sleep(self) -> None:
        """Flush its cache and release its memory; raises EngineError where it is busy."""
        if self._is_asleep:
            return
        if running := (await self.load()).running:
            raise EngineError(f"worker {self._worker_id} is busy with {running} requests")
        await self._attempts.run(lambda: self._calls.put_to_sleep(self._worker_id), is_last=_none)
        self._is_asleep = True

    async def wake(self) -> None:
        """Take its memory again."""
        if self._is_asleep:
            await self._attempts.run(lambda: self._calls.wake(self._worker_id), is_last=_none)
            self._is_asleep = False


def _none(error: EngineError) -> bool:
    """Any failure may pass: what a group's methods do is done twice without harm, as the seed's are."""
    del error
    return False
