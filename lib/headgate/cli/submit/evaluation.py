"""The evaluation that is sent to a cluster: a command of Headgate, checked before it is queued for hours."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import CycloptsError, Parameter

from headgate.cli.options import Choices, JudgeChoices, SettingChoices
from headgate.config import Settings
from headgate.core.errors import InvalidInputError
from headgate.telemetry import safe_text

Words = Annotated[
    str, Parameter(help="After `--`: the evaluation, as `run … --instances N` or `judge …` with all of its options.")
]
Links = Annotated[int, Parameter(help="Most runs of the chain; each continues where the one before it ended.")]
DryRun = Annotated[bool, Parameter(help="Print what would be sent, and send nothing.")]

ENDS_CHAIN: Final = (0, 1, 2, 4)
"""Exit statuses of `headgate` after which another link would do nothing, or fail the same way."""

MARGIN_S: Final = 60.0
"""Seconds beyond `drain_timeout_s`: to store what a drained run has, and as SLURM checks time limits rarely."""

_COMMANDS: Final[dict[str, Callable[[], SettingChoices]]] = {"run": Choices, "judge": JudgeChoices}
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """An evaluation to send.

    Attributes:
        words: the command and its options, without `headgate`.
        settings: the settings that the command loads here.
        files: files of this machine that the words name, with their paths as written there.
    """

    words: tuple[str, ...]
    settings: Settings
    files: tuple[str, ...]

    @property
    def drain_s(self) -> int:
        """Seconds between the signal to end and the time limit of a link."""
        return int(self.settings.drain_timeout_s + MARGIN_S)

    @property
    def folders(self) -> dict[str, str]:
        """Folders that keep what the next link needs: option -> path as written."""
        places = {"--journal": str(self.settings.journal), "--store": self.settings.store}
        return {option: place for option, place in places.items() if "://" not in place}

    @property
    def name(self) -> str:
        """A name for it that clusters accept: the campaign's name in small letters, digits and dashes."""
        plain = re.sub(r"[^a-z0-9]+", "-", self.settings.campaign.lower()).strip("-")
        return f"headgate-{plain or 'evaluation'}"[:50].rstrip("-")


def evaluation_of(words: Sequence[str], links: int) -> Evaluation:
    """Return the evaluation that the words describe, after a check that `headgate` accepts them.

    Raises:
        InvalidInputError: if it does not, or if the evaluation would never end.
    """
    if links < 1:
        raise InvalidInputError(f"--links must be >= 1 (got {links})")
    if not words or words[0] not in _COMMANDS:
        raise InvalidInputError(
            f"after `--` comes the evaluation (got {' '.join(words[:1]) or 'nothing'!r})",
            next_step="As in: headgate submit slurm -- run --roster roster.yaml --instances 100",
        )
    if odd := next((word for word in words if _CONTROL.search(word)), None):
        raise InvalidInputError(f"an option must be one line of text (got {odd!r:.80})")
    arguments = _parsed(words)
    choices: SettingChoices = arguments.get("choices") or _COMMANDS[words[0]]()
    settings = choices.load(**({"instances": arguments.get("instances")} if words[0] == "run" else {})).settings
    if words[0] == "run" and settings.instances is None:
        raise InvalidInputError(
            "`run` without --instances samples by rates and never ends, so the chain would never end either",
            next_step="Say how many tasks to evaluate: --instances 100.",
        )
    limits = arguments["how"].limits if "how" in arguments else ""
    return Evaluation(tuple(words), settings, _files(settings, (choices.config, choices.campaign, limits)))


def sent(program: Sequence[str], text: str) -> str:
    """Pipe a text to a cluster's program, and return its output.

    Raises:
        InvalidInputError: if the program is not on this machine, or refuses; with its own words.
    """
    if shutil.which(program[0]) is None:
        raise InvalidInputError(
            f"there is no {program[0]} on this machine",
            next_step="Run this on a machine that can use the cluster, or take the output of --dry-run there.",
        )
    done = subprocess.run(list(program), input=text, capture_output=True, text=True, check=False)  # noqa: S603 - no shell
    if done.returncode:
        says = " ".join(safe_text(line) for line in done.stderr.split("\n") if line.strip())
        raise InvalidInputError(
            f"{program[0]} refuses it: {says or f'exit status {done.returncode}'}", next_step="Nothing was queued."
        )
    return done.stdout.strip()


def _parsed(words: Sequence[str]) -> dict[str, Any]:
    from headgate.cli.main import build_app  # noqa: PLC0415 - it loads this module by name

    try:
        _, bound, _ = build_app().parse_args(list(words), exit_on_error=False, print_error=False)
    except CycloptsError as error:
        says = " ".join(str(error).split())
        raise InvalidInputError(f"`headgate {words[0]}` does not take these options: {says}") from None
    return bound.arguments


def _files(settings: Settings, named: Iterable[object]) -> tuple[str, ...]:
    members = (name.partition(":")[2].partition("@")[0] for name in settings.environments)
    written = [settings.roster, settings.rubric, settings.prices, *(str(one) for one in named if one), *members]
    return tuple(dict.fromkeys(path for path in written if path and Path(path).is_file()))
