"""Following placed work to its end: what it prints, where it stands, how it ended."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from headgate.cli.output import console, print_json
from headgate.placement.errors import PlacementLostError, WorkFailedError
from headgate.telemetry import json_safe, printable, safe_text

if TYPE_CHECKING:
    from headgate.placement.cluster.placed import PlacedWork
    from headgate.placement.service.values import WorkView

_EVERY_S: Final = 0.3
_ANSWER_S: Final = 5.0


def follow(work: PlacedWork, *, is_command: bool, as_json: bool) -> int:
    """Show what happens to work until it ends, and return the exit status: a command's own, else 0.

    Raises:
        WorkFailedError: the work raised.
        PlacementLostError: it was taken out.
    """
    shown = _Shown(work, is_command=is_command, is_quiet=as_json)
    view = shown.until_the_end()
    result = _result(work)
    results = result if view.members > 1 else [result]
    status = max((one.status for one in results), default=0) if is_command else 0
    if as_json:
        document = {"request": work.request_id, "status": status, "starts": view.epoch, "preemptions": view.preemptions}
        print_json(document | {"results": json_safe(list(results))})
    else:
        shown.rest(view, results)
    return status


def _result(work: PlacedWork) -> Any:
    """Return what work returned; where it raised, its traceback is printed line by line, and left out of the error."""
    try:
        return work.result(timeout=_ANSWER_S)
    except WorkFailedError as error:
        says, *trace = error.message.splitlines()
        for line in trace:
            sys.stderr.write(printable(line) + "\n")
        raise WorkFailedError(says) from error


class _Shown:
    """What has been shown of one request; lines are counted anew with each start."""

    def __init__(self, work: PlacedWork, *, is_command: bool, is_quiet: bool) -> None:
        self._work = work
        self._is_command = is_command
        self._is_quiet = is_quiet
        self._told: tuple[object, ...] = ()
        self._epoch = 0
        self._lines: dict[int, int] = {}

    def until_the_end(self) -> WorkView:
        """Show stages and lines until the request has ended, and return how it stands then."""
        while True:
            with suppress(TimeoutError):
                return self._work.wait(_EVERY_S)
            self._look(self._work.view())

    def rest(self, view: WorkView, results: Sequence[Any]) -> None:
        """Show what came after the last look: lines of a command, or what a class returned."""
        if view.epoch != self._epoch:
            self._lines.clear()
        for rank, result in enumerate(results):
            if not self._is_command:
                self._print(rank, len(results), repr(result))
                continue
            unseen = result.lines - self._lines.get(rank, 0)
            if unseen > len(result.tail):
                self._print(rank, len(results), f"… {unseen - len(result.tail)} lines left out")
            for line in result.tail[max(0, len(result.tail) - unseen) :] if unseen > 0 else ():
                self._print(rank, len(results), line)

    def _look(self, view: WorkView) -> None:
        if self._is_quiet:
            return
        if view.epoch != self._epoch:
            self._lines.clear()
            self._epoch = view.epoch
        if (view.stage, view.epoch) != self._told:
            self._told = (view.stage, view.epoch)
            console(stderr=True).print(_sentence(view), highlight=False, markup=False, style="dim")
        if self._is_command and view.stage == "running":
            self._read(view.members)

    def _read(self, members: int) -> None:
        import ray  # noqa: PLC0415 - whoever follows work has it
        from ray.exceptions import RayError  # noqa: PLC0415

        with suppress(PlacementLostError, RayError):  # it ends or is stopped while it is asked
            for rank, member in enumerate(self._work.members):
                told = ray.get(member.call("lines", (self._lines.get(rank, 0),)), timeout=_ANSWER_S)
                self._lines[rank] = told.next_line
                for line in told.lines:
                    self._print(rank, members, line)

    def _print(self, rank: int, members: int, line: str) -> None:
        sys.stdout.write(printable(f"[{rank}] {line}" if members > 1 else line) + "\n")
        sys.stdout.flush()


def _sentence(view: WorkView) -> str:
    where = f" in {view.group_id}" if view.group_id else ""
    again = f", start {view.epoch}" if view.epoch > 1 else ""
    return safe_text(f"{view.request_id} is {view.stage}{where}{again}")
