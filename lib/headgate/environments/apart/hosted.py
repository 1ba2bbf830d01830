"""The caller's side of an environment that runs in another process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, cast

from headgate.core import Message
from headgate.core.errors import EnvironmentFailedError, HeadgateError
from headgate.environments.apart import frames
from headgate.environments.apart.frames import Call, Frame, MovedError, failure_of
from headgate.environments.apart.host import Host
from headgate.environments.judge_questions import ReadsGrades
from headgate.environments.protocol import BaselineKind, Continue, EnvironmentSpec, ForJudge, Score

if TYPE_CHECKING:
    from headgate.environments.apart.process import Child
    from headgate.environments.apart.remote import RemoteCall, RemoteSeats


def members_of(host: Host) -> tuple[str, ...]:
    """Return the names of a collection's environments, as reported by its process; blocks.

    Raises:
        HeadgateError: whatever the collection raises, or an `EnvironmentFailedError` if its process fails.
    """
    return tuple(str(name) for name in host.ask("names", "").future.result()["names"])


def specs_of(names: Sequence[str], host: Host) -> tuple[EnvironmentSpec | HeadgateError, ...]:
    """Return the specs of a collection's environments, or the errors, in the order of `names`; blocks.

    Raises:
        HeadgateError: if its process fails.
    """
    frame = host.ask("specs", "", names=list(names)).future.result()
    return tuple(
        failure_of(one, f"environment {name!r}", "making it") if "raised" in one else EnvironmentSpec(**one["spec"])
        for name, one in zip(names, frame["specs"], strict=True)
    )


def hosted_environment(name: str, host: Host) -> HostedEnvironment:
    """Return environment `name` of a collection, with the spec from its process; blocks.

    Raises:
        HeadgateError: whatever creating it raises, or an `EnvironmentFailedError` if its process fails.
    """
    (found,) = specs_of((name,), host)
    if isinstance(found, HeadgateError):
        raise found
    return hosted(found, host)


class HostedEnvironment:
    """An `Environment` whose episodes run in other processes.

    Belongs to no event loop if these are on this machine, to that of its hosts if they are on others.
    """

    def __init__(self, spec: EnvironmentSpec, host: Host | RemoteSeats) -> None:
        self.spec = spec
        self.source = host.source
        """Where its processes get it from."""
        self._host = host

    async def open(self, index: int, seed: int) -> HostedEpisode:
        """Start task `index` in the process with the fewest episodes.

        Raises:
            EnvironmentFailedError: if there is no such task, it cannot be created, or the process fails.
        """
        name, length = self.spec.name, self.spec.data_length
        if not 0 <= index < length:
            raise EnvironmentFailedError(
                f"environment {name!r} has the tasks 0 to {length - 1} (got {index})",
                next_step="Ask for one of them; campaigns take an index modulo data_length.",
            )
        return await HostedEpisode.begun(name, index, seed, self._host)

    async def baseline(
        self, kind: BaselineKind, index: int, seed: int, conversation: Sequence[Message], rng: random.Random
    ) -> str:
        """Return a scripted baseline's reply; it draws from its own random generator, seeded from `rng`."""
        call = self._host.ask(
            "baseline",
            self.spec.name,
            kind=kind,
            index=index,
            seed=seed,
            conversation=frames.said(conversation),
            draw=rng.getrandbits(64),
        )
        return str((await _answered(call))["reply"])


class HostedGradedEnvironment(ReadsGrades, HostedEnvironment):
    """A hosted environment whose answers a judge grades; the judges' replies are read in this process."""


def hosted(spec: EnvironmentSpec, host: Host | RemoteSeats) -> HostedEnvironment:
    """Return the environment with this spec whose episodes run on `host`."""
    return (HostedGradedEnvironment if spec.needs_judge else HostedEnvironment)(spec, host)


async def _answered(call: Call | RemoteCall) -> Frame:
    """Return the answer to a call, or raise its exception. If the caller is cancelled, so is the call."""
    try:
        return await call.heard()
    except asyncio.CancelledError:
        call.give_up()
        raise


def _has_succeeded(future: Future[Frame] | asyncio.Future[Frame]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


class HostedEpisode:
    """An `Episode` in another process. Owned by one worker; holds a seat of the host until it is closed.

    If another model blocks its process, it restarts in another process, which replays the replies so far.
    """

    def __init__(self, name: str, index: int, seed: int, host: Host | RemoteSeats) -> None:
        self.opening: tuple[Message, ...] = ()
        self._name = name
        self._task = {"index": index, "seed": seed}
        self._host = cast("Host", host)  # which `RemoteSeats` are like; each takes back only what it gave itself
        self._child: Child | None = None
        self._number = 0
        self._past: list[tuple[str, Continue | Score | ForJudge]] = []
        self._is_well = True

    @classmethod
    async def begun(cls, name: str, index: int, seed: int, host: Host | RemoteSeats) -> HostedEpisode:
        """Return an opened episode; raises as `HostedEnvironment.open` does."""
        episode = cls(name, index, seed, host)
        while True:
            try:
                await episode._begin()
            except MovedError:
                continue
            return episode

    async def _begin(self) -> None:
        """Open the episode in one of the host's processes and replay the replies so far."""
        child = self._host.seat()
        call: Call | RemoteCall | None = None
        try:
            call = child.call("open", self._name, **self._task)
            frame = await _answered(call)
            self._child, self._number, self.opening = child, call.number, frames.heard(frame["opening"])
        except BaseException:
            # Cancelled after the answer had arrived but before it was processed: the episode is open without an owner.
            if call is not None and _has_succeeded(call.future) and not child.is_gone:
                child.call("close", self._name, episode=call.number)
            self._host.leave(child, is_well=False)
            raise
        for reply, answer in self._past:
            call = child.call("answer", self._name, episode=self._number, reply=reply)
            if frames.answer_of(await _answered(call)) != answer:
                raise EnvironmentFailedError(f"environment {self._name!r} answers differently when a task is replayed")

    async def answer(self, reply: str) -> Continue | Score | ForJudge:
        """Return the environment's answer to `reply`.

        Raises:
            EnvironmentFailedError: if it fails, or its process has ended for whatever reason.
        """
        call: Call | RemoteCall | None = None
        try:
            while True:
                child = self._child
                if child is None or child.is_gone or child.blocked_by:
                    child = await self._place()
                call = child.call("answer", self._name, episode=self._number, reply=reply)
                try:
                    answer = frames.answer_of(await call.heard())
                except MovedError:
                    self._leave()
                    continue
                self._past.append((reply, answer))
                return answer
        except BaseException:
            self._is_well = False
            if call is not None:
                call.give_up()
            raise

    async def _place(self) -> Child:
        """Return the episode's process, after moving the episode if it cannot stay in the current one."""
        if self._child is not None and self._host.is_misplaced(self._child):
            self._leave()
        if self._child is None:
            await self._begin()
        assert self._child is not None
        if self._child.is_gone:
            raise self._child.lost(self._name, "answer")
        return self._child

    def _leave(self) -> None:
        """Give the seat back at once; the process closes its part of the episode when it gets to it."""
        child, self._child = self._child, None
        if child is not None:
            if not child.is_gone:
                child.call("close", self._name, episode=self._number)
            self._host.leave(child, is_well=False)

    async def close(self) -> None:
        """Release the episode's resources; there are none if its process is gone."""
        child, self._child = self._child, None
        if child is None:
            return
        try:
            if not child.is_gone:
                await child.call("close", self._name, episode=self._number).heard()
        except EnvironmentFailedError:
            if not child.is_gone:
                raise
        finally:
            self._host.leave(child, is_well=self._is_well)
