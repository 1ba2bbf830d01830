"""`headgate follow`: evaluate the checkpoints of a training as they appear."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from cyclopts import Parameter
from rich.live import Live

from headgate import reports
from headgate import run as runs
from headgate.cli.options import CheckpointChoices, RunOptions, Whole
from headgate.cli.output import CHECK_FAILED, console, counted, print_json, print_rows, say, write_page
from headgate.cli.run import at_hand, logs_are_hidden
from headgate.config import Settings
from headgate.core.errors import InvalidInputError
from headgate.core.status import CampaignStatus
from headgate.net import event_loop

_SPARE: Final = ("from", "missing", "its interval", "95 % interval", "tasks")
_TEXT: Final = frozenset({"checkpoint", "from", "verdict"})


def follow(
    place: Annotated[str, Parameter(help="Folder, or s3://bucket/prefix, that the training writes into.")],
    choices: CheckpointChoices | None = None,
    *,
    pattern: Annotated[str, Parameter(help="Names of checkpoints, such as 'step_*'; each must hold a number.")] = "*",
    marker: Annotated[
        str, Parameter(help="File that marks a checkpoint as complete. Default: its size stops changing.")
    ] = "",
    newest: Annotated[
        Whole, Parameter(help="Evaluate this many of the newest checkpoints; leave older ones out.")
    ] = 20,
    name: Annotated[str, Parameter(help="Name of the model. Default: the folder's.")] = "",
    instances: Annotated[Whole, Parameter(help="Tasks per environment, the same for every checkpoint.")] = 20,
    engine: Annotated[
        Literal["llama.cpp", "vllm", "sglang", "command"], Parameter(help="What serves the checkpoints.")
    ] = "llama.cpp",
    command: Annotated[
        str, Parameter(help="With --engine command: the command to start; {port}, {weights} and {name} are filled in.")
    ] = "",
    gpus: Annotated[Whole, Parameter(help="GPUs of each engine.")] = 0,
    replicas: Annotated[str, Parameter(help="Number of engines, or minimum-maximum, such as 0-2.")] = "",
    priority: Annotated[float | None, Parameter(help="Priority of the engines while they wait for GPUs.")] = None,
    engine_option: Annotated[
        tuple[str, ...], Parameter(help="Further flag of the engine, as name=value; may be repeated.")
    ] = (),
    option: Annotated[
        tuple[str, ...], Parameter(help="Field of every request, as temperature=0; may be repeated.")
    ] = (),
    once: Annotated[bool, Parameter(help="Evaluate the checkpoints that are there now, and end.")] = False,
    duration: Annotated[float | None, Parameter(help="Start no new checkpoint after this many seconds.")] = None,
    output: Annotated[
        Path | None, Parameter(name=("--output", "-o"), help="Write a page with the curve to this file.")
    ] = None,
    how: RunOptions | None = None,
) -> int:
    """Evaluate the checkpoints of a training as they appear, each on the same tasks, and show the curve.

    Headgate starts an engine for each checkpoint while it is evaluated. Samples that are stored are not taken again.
    On Ctrl-C it lets episodes in progress finish, stores them, and ends; the next run continues from there.

    Exit status 4 when no checkpoint has a score.
    """
    how = how or RunOptions()
    watch = {"enable_monitoring": how.enable_monitoring, "monitor_port": how.monitor_port}
    settings = (choices or CheckpointChoices()).load(**watch).settings
    serve: dict[str, Any] = {
        "engine": engine,
        "command": command,
        "gpus": gpus,
        "replicas": replicas,
        "priority": priority,
        "options": _values("--engine-option", engine_option),
    }
    order = runs.FollowOrder(
        place,
        serve={name: value for name, value in serve.items() if value not in ("", None, 0, {})},
        instances=instances,
        name=name,
        pattern=pattern,
        marker=marker,
        newest=newest,
        entry={"options": _values("--option", option)} if option else {},
    )
    is_live = logs_are_hidden(how.verbose, as_json=how.as_json)
    if not how.as_json:
        say(f"following {order.model_name} in {place}: {counted(instances, 'task')} per environment; Ctrl-C ends")
    result = event_loop.run(
        _followed(settings, order, how.limits, output, until_idle=once, duration_s=duration, is_live=is_live)
    )
    status = CHECK_FAILED if result.curve.best is None else 0
    if how.as_json:
        print_json(result.document())
        return status
    print_rows(f"checkpoints of {order.model_name}", reports.curve_rows(result.curve), names=_TEXT, spare=_SPARE)
    for revision, why in result.failed.items():
        say(f"{revision} lacks scores: {why}")
    if result.skipped:
        older = counted(result.skipped, "older checkpoint")
        say(f"{older} left out: only the newest {newest} are evaluated (--newest)")
    say(f"{counted(len(result.evaluated), 'checkpoint')} evaluated ({result.stopped_by})")
    if output is not None and not status:
        say(str(output.resolve()))
    return status


def _values(name: str, pairs: tuple[str, ...]) -> dict[str, Any]:
    """Return `name=value` pairs; values are parsed as YAML, and a name alone means true."""
    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key.replace("-", "_").replace(".", "_").isidentifier():  # `temperature:0` would be a name alone
            raise InvalidInputError(f"{name} takes name=value, or a name alone (got {pair!r})")
        try:
            values[key.lstrip("-")] = yaml.safe_load(value) if equals else True
        except yaml.YAMLError:
            values[key.lstrip("-")] = value
    return values


async def _followed(
    settings: Settings, order: runs.FollowOrder, limits: str, output: Path | None, *, is_live: bool, **length: Any
) -> runs.FollowResult:
    live = Live(console=console(), refresh_per_second=4, transient=True) if is_live else None

    async def show(status: CampaignStatus) -> None:
        if live is not None:
            live.update(reports.live_view(status))

    async def publish(curve: reports.CheckpointCurve, point: reports.CheckpointScore | None) -> None:
        if output is not None:
            page = reports.curve_view(curve, title=f"Checkpoints of {order.model_name}").page()
            await asyncio.to_thread(write_page, output, page)
        if is_live and point is not None:
            row = next(row for row in reports.curve_rows(curve) if row["checkpoint"] == point.model)
            say(", ".join(f"{column} {cell}" for column, cell in row.items() if cell not in {"", "–"}))

    async with at_hand(settings, limits) as given:
        with live or nullcontext():
            return await runs.follow_checkpoints(
                settings,
                order,
                on_curve=publish,
                on_status=show,
                stop=given["stop"],
                slots=given["slots"],
                engine_hosts=given["engine_hosts"],
                **length,
            )
