"""Strays: groups of ours in the cluster that the journal does not know, removed as soon as the cluster lets them go."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Final

from headgate.placement.service.hands import GroupFailedError, Hands

TRIES: Final = 60
"""After so many tries, five minutes at least, somebody has to look: what Ray has not removed by then it never will."""

_log = logging.getLogger("headgate.placement")


class Strays:
    """Removes groups that nobody knows. Owned by the service, from its start until its end.

    What cannot be removed is told when it is first tried and when it is given up, and not in between.
    """

    def __init__(self, hands: Hands) -> None:
        self._hands = hands
        self._tries: dict[str, int] = {}
        self._task: asyncio.Task[None] | None = None

    async def remove(self, group_id: str) -> None:
        """Remove a group, or keep it for `try_again`."""
        why = await self._why_not(group_id)
        if why:
            self._tries[group_id] = 1
            _log.warning("Group %s, unknown to the journal, could not be removed; trying again: %s", group_id, why)

    def try_again(self) -> None:
        """Set another try of all that is left going, unless one is under way; returns at once."""
        if self._tries and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._try_again())

    async def close(self) -> None:
        """End; legal twice."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _try_again(self) -> None:
        for group_id in sorted(self._tries):
            why = await self._why_not(group_id)
            self._tries[group_id] += 1
            if not why:
                del self._tries[group_id]
                _log.info("Group %s, unknown to the journal, is removed", group_id)
            elif self._tries[group_id] >= TRIES:
                del self._tries[group_id]
                _log.error(
                    "Group %s, unknown to the journal, could not be removed in %d tries; its resources are lost: %s. "
                    "Look with `ray list placement-groups`; `headgate placement audit --fix` tries it once more.",
                    group_id,
                    TRIES,
                    why,
                )

    async def _why_not(self, group_id: str) -> str:
        """Remove a group; return why it could not be, nothing when it is gone."""
        try:
            await self._hands.remove_group(group_id)
        except GroupFailedError as error:
            return error.message
        except Exception as error:  # noqa: BLE001 - told by the caller; Ray may answer the next time
            return f"{type(error).__name__}: {error}"
        return ""
