"""Answers a run's calls, each in its own task: in the process of a package, and in a host on another machine."""

from __future__ import annotations

import abc
import asyncio
import contextlib
from collections.abc import Callable
from typing import ClassVar

from headgate.environments.apart import frames
from headgate.environments.apart.frames import Frame, failure_frame
from headgate.environments.protocol import Episode
from headgate.environments.shares import MODEL


class CallServer(abc.ABC):
    """Owns the open episodes of one caller. Belongs to the event loop on which it is called.

    Calls run as tasks of one loop, as they do in a campaign: an environment that awaits gets many calls at once, and
    one that blocks never has two at once. With threads, packages that draw from the global random generator would
    interfere with each other's tasks.
    """

    says_begun: ClassVar[bool] = True
    """Whether to report the start of each call, from which its deadline counts at the caller."""

    def __init__(self, say: Callable[[bytes], None]) -> None:
        """Prepare to answer; `say` sends a frame to the caller."""
        self._say = say
        self._episodes: dict[int, Episode] = {}
        self._calls: dict[int, asyncio.Task[None]] = {}

    def take(self, frame: Frame) -> None:
        """Start the call in `frame`, or cancel the call that it names."""
        call = frame["call"]
        if frame["do"] == "cancel":
            if call in self._calls:
                self._calls[call].cancel()
            return
        task = asyncio.get_running_loop().create_task(self._answered(call, frame))
        self._calls[call] = task
        task.add_done_callback(lambda task: self._ended(call, task))

    async def close(self) -> None:
        """Close every open episode, ignoring exceptions."""
        for episode in tuple(self._episodes.values()):
            with contextlib.suppress(Exception):
                await episode.close()

    @abc.abstractmethod
    async def opened(self, frame: Frame) -> Episode:
        """Return the requested episode, opened."""

    @abc.abstractmethod
    async def baseline(self, frame: Frame) -> str:
        """Return a scripted baseline's reply."""

    def told(self, frame: Frame) -> Frame:
        """Return the answer to any other call."""
        raise ValueError(f"unknown call {frame['do']!r:.80}")

    def _ended(self, call: int, task: asyncio.Task[None]) -> None:
        del self._calls[call]
        if task.cancelled():  # before its first step: a call and its cancellation may arrive together
            self._say(_cancelled(call))

    async def _answered(self, call: int, frame: Frame) -> None:
        if self.says_begun:
            self._say(frames.packed({"call": call, "begun": True}))
        MODEL.set(frame.get("model", ""))
        try:
            reply = frames.packed({"call": call, **await self._done(frame)})
        except asyncio.CancelledError:
            reply = _cancelled(call)
        except BaseException as error:  # noqa: BLE001 - also SystemExit: an environment must not end a shared process
            reply = frames.packed({"call": call, **failure_frame(error)})
        self._say(reply)

    async def _done(self, frame: Frame) -> Frame:
        match frame["do"]:
            case "open":
                return await self._open(frame)
            case "answer":
                return frames.answer_frame(await self._episodes[frame["episode"]].answer(frame["reply"]))
            case "close":
                if (episode := self._episodes.pop(frame["episode"], None)) is not None:
                    await episode.close()
                return {}
            case "baseline":
                reply = await self.baseline(frame)
                if not isinstance(reply, str):
                    raise TypeError(f"its baseline returned {reply!r:.80}, not text")
                return {"reply": reply}
        return self.told(frame)

    async def _open(self, frame: Frame) -> Frame:
        episode = await self.opened(frame)
        try:
            opening = frames.said(episode.opening)
        except BaseException:
            with contextlib.suppress(Exception):
                await episode.close()
            raise
        self._episodes[frame["call"]] = episode
        return {"opening": opening}


def _cancelled(call: int) -> bytes:
    return frames.packed({"call": call, "raised": "CancelledError", "message": "it cancelled itself"})
