"""`headgate submit slurm`: a chain of SLURM tasks, one at a time, each of which continues where the last one ended."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from headgate.cli.output import say
from headgate.cli.submit.evaluation import ENDS_CHAIN, DryRun, Evaluation, Links, Words, evaluation_of, sent
from headgate.core.errors import InvalidInputError

_TIME: Final = re.compile(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d+))?(?::(?P<third>\d+))?")
_PRIVATE: Final = ("/tmp", "/var/tmp", "/dev/shm", "/run")  # noqa: S108 - names of folders that are refused
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})

_SCRIPT: Final = """\
#!/bin/bash
# A chain of `headgate {command}`: tasks of one array run one at a time (%1), and each continues from the journal.
told=0
# SLURM signals this script before the time limit; the run then ends what is in progress, and the next link continues.
trap 'told=$((told + 1)); [ "$told" -gt 1 ] || kill -TERM "$run" 2>/dev/null' TERM INT
{words} &
run=$!
[ "$told" = 0 ] || kill -TERM "$run" # signalled before the run had started
heard=-1
while [ "$heard" != "$told" ]; do # a signal also ends `wait`
  heard=$told
  wait "$run"
  status=$?
done
echo "link $SLURM_ARRAY_TASK_ID of {links}: headgate ended with status $status"
case $status in
  {ends}) scancel --state=PENDING "$SLURM_ARRAY_JOB_ID" ;; # nothing is left, or the next link would fail the same way
esac
exit "$status"
"""


def slurm(
    *words: Words,
    time: Annotated[str, Parameter(help="Time limit of a link, in SLURM's forms: minutes, H:MM:SS, D-HH.")] = "4:00:00",
    links: Links = 20,
    option: Annotated[
        tuple[str, ...],
        Parameter(allow_leading_hyphen=True, help="Any option of sbatch, as --option=--partition=gpu; repeatable."),
    ] = (),
    shared: Annotated[bool, Parameter(help="State that every node sees the journal and the store.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Send an evaluation to SLURM, as a chain of links that continues by itself until everything is evaluated.

    A link is told to end before its time limit and stores what it has; the next one continues from the journal,
    also after a link that was killed. The chain ends when nothing is left, when `headgate` ends with a status that
    another link would not change, or after `--links`.

    `headgate submit slurm -- run --roster roster.yaml --instances 100`
    """
    evaluation = evaluation_of(words, links)
    limit_s = _seconds(time)
    if limit_s < evaluation.drain_s + 60:
        raise InvalidInputError(
            f"--time {time} leaves a link less than a minute to work: it is told to end {evaluation.drain_s} s before "
            "(drain_timeout_s and a minute)",
            next_step="Give it more time, or lower the setting drain_timeout_s.",
        )
    if not shared:
        _refuse_private(evaluation)
    sbatch, script = _sbatch(evaluation, time, links, option), _script(evaluation, links)
    if dry_run:
        sys.stdout.write(f"{shlex.join(sbatch)} <<'END_OF_LINK'\n{script}END_OF_LINK\n")
        return
    job = sent(sbatch, script).partition(";")[0]
    say(
        f"{job} is queued: at most {links} links of {time}, one at a time\n"
        f"`squeue --job={job}` shows the chain, `scancel {job}` ends it; links write headgate-{job}_LINK.log"
    )


def _sbatch(evaluation: Evaluation, time: str, links: int, further: tuple[str, ...]) -> tuple[str, ...]:
    if odd := next((option for option in further if not option.startswith("-")), None):
        raise InvalidInputError(f"--option takes one of sbatch's, as --option=--partition=gpu (got {odd!r:.80})")
    return (
        "sbatch",
        "--parsable",
        f"--job-name={evaluation.name}",
        f"--array=1-{links}%1",
        f"--time={time}",
        f"--signal=B:TERM@{evaluation.drain_s}",
        f"--chdir={Path.cwd()}",
        "--output=headgate-%A_%a.log",
        "--open-mode=append",
        "--ntasks=1",
        *further,
    )


def _script(evaluation: Evaluation, links: int) -> str:
    return _SCRIPT.format(
        command=evaluation.words[0],
        words=shlex.join((sys.executable, "-m", "headgate.cli", *evaluation.words)),
        links=links,
        ends="|".join(map(str, ENDS_CHAIN)),
    )


def _seconds(time: str) -> int:
    """Return the seconds of a time limit in the forms that sbatch takes."""
    found = _TIME.fullmatch(time)
    numbers = [int(number) for number in found.group("first", "second", "third") if number] if found else []
    if not numbers:
        raise InvalidInputError(f"--time takes minutes, H:MM:SS or D-HH:MM (got {time!r:.40})")
    days = found["days"] if found is not None else None
    if days is None and len(numbers) < 3:
        numbers = [0, *numbers]
    hours, minutes, seconds = (*numbers, 0, 0)[:3]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def _refuse_private(evaluation: Evaluation) -> None:
    """Refuse folders that the node of the next link does not see."""
    for option, place in evaluation.folders.items():
        path = Path(place).expanduser().resolve()
        if any(path.is_relative_to(private) for private in _PRIVATE) or _file_system(path) in _IN_MEMORY:
            raise InvalidInputError(
                f"{option} {path} is local to this machine, so the nodes of a chain do not see it",
                next_step=f"Name a folder that all nodes share with {option}, or pass --shared if they do see it.",
            )


def _file_system(path: Path) -> str:
    """Return the kind of the file system that a path is on; empty where the kernel does not say."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return ""
    above = [(place, kind) for place, kind in mounts if path.is_relative_to(place)]
    return max(above, key=lambda one: len(one[0]), default=("", ""))[1]
