"""`headgate placement submit`: run a command or a class in a placement group."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from headgate.cli.output import AsJson, console, print_json, say, tell
from headgate.cli.placement.ledger import Address, joined, require_ray
from headgate.core.errors import InvalidInputError
from headgate.placement import MOST_BUNDLES, PlacementLostError, Strategy, WorkFailedError, request_spec
from headgate.telemetry import json_safe, printable, safe_text

if TYPE_CHECKING:
    from headgate.placement import PlacedWork, WorkView

_EVERY_S: Final = 0.3
_ANSWER_S: Final = 5.0

_CLASS: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the work needs, and how it queues."""

    pool: Annotated[str, Parameter(help="Pool whose quota the request counts against.")]
    priority: Annotated[float, Parameter(help="Higher goes first; from 8 on it may claim reserved groups.")] = 5.0
    cpus: Annotated[float, Parameter(help="CPUs of each member.")] = 1.0
    gpus: Annotated[float, Parameter(help="GPUs of each member.")] = 0.0
    memory: Annotated[str, Parameter(help="Memory of each member, such as 2GiB.")] = ""
    label: Annotated[tuple[str, ...], Parameter(help="Label for preemption rules, role=train; may be repeated.")] = ()
    gang: Annotated[int, Parameter(help="Number of members, which start together or not at all.")] = 1
    strategy: Annotated[Strategy, Parameter(help="How Ray places the members.")] = "PACK"
    node_label: Annotated[
        tuple[str, ...], Parameter(help="Label that its nodes need, key=value; may be repeated.")
    ] = ()
    request: Annotated[str | None, Parameter(help="Request id; an existing one is joined, and nothing new runs.")] = (
        None
    )
    preemptible: Annotated[bool, Parameter(negative="--no-preemptible", help="Whether other work may preempt it.")] = (
        True
    )
    estimated_duration_s: Annotated[float, Parameter(help="Expected run time in seconds; 0 if unknown.")] = 0.0

    def as_written(self) -> dict[str, Any]:
        """Return it as a request document."""
        resources: dict[str, Any] = {"cpu": self.cpus, "gpu": self.gpus}
        if self.memory:
            resources["memory"] = self.memory
        if not 1 <= self.gang <= MOST_BUNDLES:
            raise InvalidInputError(f"--gang must be in [1, {MOST_BUNDLES}] (got {self.gang})")
        named = {"request_id": self.request} if self.request else {}
        return named | {
            "pool": self.pool,
            "bundles": [resources] * self.gang,
            "priority": self.priority,
            "labels": _pairs("--label", self.label),
            "node_labels": _pairs("--node-label", self.node_label),
            "strategy": self.strategy,
            "preemptible": self.preemptible,
            "estimated_duration_s": self.estimated_duration_s,
        }


def submit(
    *work: Annotated[str, Parameter(help="module:Class, or `--` and a command with its arguments.")],
    wanted: Wanted,
    method: Annotated[str, Parameter(help="Method of a class to run.")] = "run",
    env: Annotated[
        tuple[str, ...], Parameter(help="Environment variable of a command, NAME=value; may be repeated.")
    ] = (),
    wait: Annotated[bool, Parameter(negative="--no-wait", help="Wait for its end and show its output.")] = True,
    address: Address = None,
    as_json: AsJson = False,
) -> int:
    """Run a command or a class in a placement group, by priority.

    Waits, shows a command's output, and ends with its exit status; Ctrl-C cancels the request. A preempted command
    starts over; a preempted class continues from the state that it saved.
    """
    require_ray()
    if not work:
        raise InvalidInputError("there is no work", next_step="Name module:Class, or a command after `--`.")
    written = wanted.as_written()
    request_spec(written)
    is_command = len(work) != 1 or _CLASS.fullmatch(work[0]) is None
    variables = _pairs("--env", env)
    what: type
    args: tuple[Any, ...]
    if is_command:
        from headgate.placement import CommandWork  # noqa: PLC0415 - only where Ray is installed

        what, args = CommandWork, (work, variables, str(Path.cwd()))
    else:
        what, args = _class(work[0]), ()
    with joined(address) as placement:
        pool = placement.pool(written.pop("pool"))
        placed = pool.submit(what, *args, method="run" if is_command else method, **written)
        if not placed.is_new:
            say(_joins(placed), stderr=True)
        if wait:
            return _followed(placed, is_command=is_command, as_json=as_json)
        placement.close(keep_work=True)
    queued = f"{placed.request_id} is queued; `headgate placement why {placed.request_id}` says what it waits for"
    document = {"request": placed.request_id, "new": placed.is_new}
    return tell(document, *([queued] if placed.is_new else []), as_json=as_json)


def _joins(work: PlacedWork) -> str:
    """Return a sentence saying that nothing new runs, since the request exists already."""
    view = work.view()
    return (
        f"{work.request_id} was submitted before and is {view.stage}: this joins it, and what is given here does not "
        "run; give another --request for that"
    )


def _class(name: str) -> type:
    """Return the class of `module:Class`, imported from the current folder; the nodes need not have its module."""
    import cloudpickle  # type: ignore[import-untyped]  # noqa: PLC0415 - comes with Ray

    module_name, _, class_name = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
        found: type = getattr(module, class_name)
    except (ImportError, AttributeError) as error:
        raise InvalidInputError(
            f"{name} cannot be imported: {error}", next_step="Name it as module:Class, from where the module is found."
        ) from error
    cloudpickle.register_pickle_by_value(module)
    return found


def _pairs(option: str, written: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for one in written:
        name, equals, value = one.partition("=")
        if not name or not equals:
            raise InvalidInputError(f"{option} takes NAME=value (got {one!r})")
        pairs[name] = value
    return pairs


def _followed(work: PlacedWork, *, is_command: bool, as_json: bool) -> int:
    """Show what happens to work until it ends, and return the exit status: a command's own, else 0."""
    shown = _Shown(work, is_command=is_command, is_quiet=as_json)
    view = shown.until_the_end()
    try:
        result = work.result(timeout=_ANSWER_S)
    except WorkFailedError as error:  # its traceback is printed line by line, and left out of the error
        says, *trace = error.message.splitlines()
        for line in trace:
            sys.stderr.write(printable(line) + "\n")
        raise WorkFailedError(says, next_step=error.next_step) from error
    results = result if view.members > 1 else [result]
    status = max((one.status for one in results), default=0) if is_command else 0
    if as_json:
        document = {"request": work.request_id, "new": work.is_new, "status": status}
        document |= {"starts": view.epoch, "preemptions": view.preemptions}
        print_json(document | {"results": json_safe(list(results))})
    else:
        shown.rest(view, results)
    return status


class _Shown:
    """Shows the progress of one request; lines are counted from 0 again with each start."""

    def __init__(self, work: PlacedWork, *, is_command: bool, is_quiet: bool) -> None:
        self._work = work
        self._is_command = is_command
        self._is_quiet = is_quiet
        self._told: tuple[object, ...] = ()
        self._epoch = 0
        self._lines: dict[int, int] = {}

    def until_the_end(self) -> WorkView:
        """Show stages and lines until the request has ended, and return its final view."""
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
            where = f" in {view.group_id}" if view.group_id else ""
            again = f", start {view.epoch}" if view.epoch > 1 else ""
            says = safe_text(f"{view.request_id} is {view.stage}{where}{again}")
            console(stderr=True).print(says, highlight=False, markup=False, style="dim")
        if self._is_command and view.stage == "running":
            self._read(view.members)

    def _read(self, members: int) -> None:
        import ray  # noqa: PLC0415 - installed where work can be followed
        from ray.exceptions import RayError  # noqa: PLC0415

        with suppress(PlacementLostError, RayError):  # it may end or be stopped meanwhile
            for rank, member in enumerate(self._work.members):
                told = ray.get(member.call("lines", (self._lines.get(rank, 0),)), timeout=_ANSWER_S)
                self._lines[rank] = told.next_line
                for line in told.lines:
                    self._print(rank, members, line)

    def _print(self, rank: int, members: int, line: str) -> None:
        sys.stdout.write(printable(f"[{rank}] {line}" if members > 1 else line) + "\n")
        sys.stdout.flush()
