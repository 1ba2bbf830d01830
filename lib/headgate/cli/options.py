"""Options that commands share, and the settings that they result in. A command offers only what it uses."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar, dataclass_transform

from cyclopts import Parameter, Token

from headgate import storage
from headgate.cli.output import AsJson
from headgate.config import LoadedSettings, load_settings
from headgate.core import moment_of
from headgate.core.errors import InvalidSettingError

T = TypeVar("T")


def whole(_: object, tokens: Sequence[Token]) -> int:
    """Return the whole number that an option was given; raise ValueError if it is none."""
    try:
        return int(tokens[0].value)  # cyclopts itself would accept 1.5
    except ValueError:
        raise ValueError(f"it must be a whole number (got {tokens[0].value})") from None


Whole = Annotated[int, Parameter(converter=whole)]
"""An option that takes a whole number: `Annotated[Whole, Parameter(help=...)]`."""


_SETTINGS: Final = {
    "roster": "roster",
    "environment": "environments",
    "store": "store",
    "journal": "journal",
    "workers": "num_evaluation_workers",
    "executors": "executors",
    "prices": "prices",
    **{name: name for name in ("judge_model", "judge_url", "judge_parallel", "judgements", "rubric")},
}
"""Option -> the setting that it sets."""

_TIMES: Final = "2026-01-31, 2026-01-31T06:00Z, or 36h, 7d ago"

_Roster = Annotated[
    str | None, Parameter(help="Roster of models: a file, an http(s) URL, or `baselines` for the baseline agents.")
]

_CampaignName = Annotated[
    str | None, Parameter(help="Name of the campaign, or a YAML file of its settings, as --config takes.")
]
_Journal = Annotated[str | None, Parameter(help="Folder of the journal, or its postgresql:// address.")]
_Prices = Annotated[str | None, Parameter(help="YAML or JSON file of prices by model and lane.")]

RunUrl = Annotated[
    str | None, Parameter(help="Monitoring API of a run. Default: those of the runs that the journal lists.")
]

_JudgeModel = Annotated[str | None, Parameter(help="Name of the model that judges.")]

_JudgeUrl = Annotated[str | None, Parameter(help="Base URL of the judge's endpoint, up to /v1.")]

_JudgeParallel = Annotated[int | None, Parameter(help="Maximum number of the judge's requests in flight.")]

_Rubric = Annotated[str | None, Parameter(help="YAML file of a rubric to judge by, in any environment.")]

Verbose = Annotated[int, Parameter(name=("--verbose", "-v"), count=True, help="More log lines; twice for all.")]

Limits = Annotated[
    str,
    Parameter(help="Limits on requests that all processes share: an Admission Limits block, or a .yaml or .json file."),
]

PageFile = Annotated[
    Path | None, Parameter(name=("--output", "-o"), help="Also write a self-contained page to this file.")
]
MissingChoice = Annotated[
    Literal["bound", "exclude", "zero"],
    Parameter(
        help="How samples without a score count: as 0 in ranks (bound), not at all (exclude), or as 0 everywhere "
        "(zero)."
    ),
]


def names_in(given: Sequence[str]) -> tuple[str, ...]:
    """Return the comma-separated names in the values of an option."""
    return tuple(name.strip() for text in given for name in text.split(",") if name.strip())


@dataclass_transform(kw_only_default=True, frozen_default=True)
def options(cls: type[T]) -> type[T]:
    """Make a class one parameter of commands; its fields become their options."""
    of_fields = dataclass(frozen=True, slots=True, kw_only=True)(cls)
    return Parameter(name="*")(of_fields)


@options
class SettingChoices:
    """Where settings come from; flags take precedence over variables, files and defaults."""

    takes_campaign_name: ClassVar[bool] = False
    """Whether `--campaign` may be a campaign's name, and not only a file of its settings."""

    config: Annotated[Path | None, Parameter(help="YAML file of settings; also HEADGATE_CONFIG.")] = None
    campaign: Annotated[
        str | None, Parameter(help="YAML file of a campaign's settings, as --config takes: its store, its models.")
    ] = None
    set: Annotated[tuple[str, ...], Parameter(name="--set", help="Any setting, as name=value; may be repeated.")] = ()

    def load(self, **further: Any) -> LoadedSettings:
        """Return the settings; `further` are flags of the command itself.

        Raises:
            InvalidSettingError: see `headgate.config.load_settings`.
        """
        campaign, file = self._campaign_and_file()
        if campaign is not None and not self.takes_campaign_name:
            raise InvalidSettingError(
                f"--campaign names a campaign ({campaign}) where only a YAML file of one makes a difference",
                next_step="Leave it out: samples of all campaigns are meant. `headgate query` can ask by `campaign`.",
            )
        flags: dict[str, Any] = {"campaign": campaign, **further}
        for option, setting in _SETTINGS.items():
            flags[setting] = getattr(self, option, None)
        if flags["environments"] is not None:
            flags["environments"] = self._environments(flags["environments"])
        for pair in self.set:
            name, equals, value = pair.partition("=")
            if not equals:
                raise InvalidSettingError(f"--set takes name=value (got {pair!r})")
            flags[name.strip()] = value
        return load_settings(flags, environ=os.environ, file=file)

    def _environments(self, given: Sequence[str]) -> tuple[str, ...] | None:
        if given and not names_in(given):
            raise InvalidSettingError(
                f"--environment names none (got {','.join(given)!r})",
                next_step="Name some, comma separated, or leave the option out; `headgate environments` lists them.",
            )
        return names_in(given) or None

    def _campaign_and_file(self) -> tuple[str | None, Path | None]:
        """Return the campaign's name and the file of settings: `--campaign` takes either."""
        if self.campaign is None or not self.campaign.endswith((".yaml", ".yml")):
            return self.campaign, self.config
        if self.config is not None:
            raise InvalidSettingError(
                f"--campaign {self.campaign} and --config {self.config} are two files of settings",
                next_step="Give one of them; the other's settings can be given by --set name=value.",
            )
        return None, Path(self.campaign)


@options
class RosterChoices(SettingChoices):
    """For commands that ask models."""

    roster: _Roster = None


@options
class StoreChoices(SettingChoices):
    """For commands that read stored samples."""

    store: Annotated[
        str | None, Parameter(help="Sample store: a folder, s3://bucket/prefix or r2://bucket/prefix.")
    ] = None


@options
class NamedStoreChoices(StoreChoices):
    """For commands that store samples under a campaign's name, or look for those of one."""

    takes_campaign_name: ClassVar[bool] = True

    campaign: _CampaignName = None


@options
class SampleChoices(NamedStoreChoices):
    """For commands that choose among the stored samples."""

    environment: Annotated[
        tuple[str, ...],
        Parameter(name=("--environment", "-e"), help="Only these environments; comma separated, or repeated."),
    ] = ()
    model: Annotated[
        tuple[str, ...],
        Parameter(
            name=("--model", "-m"),
            help="Only these models: keys, or names for all revisions; comma separated, or repeated.",
        ),
    ] = ()
    since: Annotated[str, Parameter(help=f"Only samples that ended since: {_TIMES}.")] = ""
    until: Annotated[str, Parameter(help="Only samples that ended before, in the same forms.")] = ""

    def chosen(self, **further: Any) -> storage.Chosen:
        """Return which samples are chosen.

        Raises:
            InvalidInputError: if a time cannot be read, or the span is empty.
        """
        now = time.time()
        campaign, _ = self._campaign_and_file()
        return storage.Chosen(
            models=frozenset(names_in(self.model)),
            environments=frozenset(self._environments(self.environment) or ()),
            campaign=campaign,
            since=moment_of(self.since, now, option="--since") if self.since else None,
            until=moment_of(self.until, now, option="--until") if self.until else None,
            **further,
        )

    def period(self) -> str:
        """Return the chosen span of time as text for a page; empty if it is unlimited."""
        ends = (("since", self.since), ("until", self.until))
        return " ".join(f"{name} {moment}" for name, moment in ends if moment)


@options
class ScoreChoices(SampleChoices):
    """For commands that show scores."""

    original: Annotated[bool, Parameter(help="Use the scores that samples were stored with, not rescored ones.")] = (
        False
    )

    def chosen(self, **further: Any) -> storage.Chosen:
        """Return which samples are chosen, and whether by their first scores."""
        return SampleChoices.chosen(self, original=self.original, **further)


@options
class RescoreChoices(SampleChoices):
    """For commands that score stored samples again."""

    judge_model: _JudgeModel = None
    judge_url: _JudgeUrl = None
    judge_parallel: _JudgeParallel = None
    judgements: Annotated[int | None, Parameter(help="How often each answer is judged.")] = None
    rubric: _Rubric = None


@options
class JournalChoices(NamedStoreChoices):
    """For commands that look for what a campaign has in progress."""

    journal: _Journal = None


@options
class RunChoices(SettingChoices):
    """For commands that ask or steer campaigns: by the monitoring API of their runs, or in their journals."""

    takes_campaign_name: ClassVar[bool] = True

    campaign: _CampaignName = None
    journal: _Journal = None
    url: RunUrl = None


@options
class ModelChoices(RunChoices):
    """For commands that show the models of a roster and of runs."""

    roster: _Roster = None
    prices: _Prices = None


@options
class Order(RunChoices):
    """For commands that give a campaign an order, with a reason."""

    reason: Annotated[str, Parameter(help="Reason, kept with the change and shown to others.")] = ""
    dry_run: Annotated[bool, Parameter(help="Say what would be done, and change nothing.")] = False
    as_json: AsJson = False


@options
class RunOptions:
    """For commands that run a campaign: how it is watched, and what it shares."""

    enable_monitoring: Annotated[bool | None, Parameter(help="Serve the monitoring API.")] = None
    monitor_port: Annotated[int | None, Parameter(help="Port of the monitoring API; 0 takes a free one.")] = None
    limits: Limits = ""
    verbose: Verbose = 0
    as_json: AsJson = False


@options
class CheckpointChoices(JournalChoices):
    """For commands that run a campaign and supply its models themselves."""

    environment: Annotated[
        tuple[str, ...],
        Parameter(
            name=("--environment", "-e"),
            help="Environments, by name or pattern; comma separated, or repeated.",
        ),
    ] = ()
    workers: Annotated[int | None, Parameter(help="Maximum number of episodes in progress.")] = None
    executors: Annotated[
        str | None,
        Parameter(
            help="Where an environment's episodes run: ENVIRONMENT=local or ENVIRONMENT=jobqueue, comma separated."
        ),
    ] = None


@options
class Choices(CheckpointChoices):
    """For commands that run a campaign, or look at all of its settings."""

    roster: _Roster = None
    prices: _Prices = None


@options
class JudgeChoices(Choices):
    """For commands that have a judge read answers."""

    judge_model: _JudgeModel = None
    judge_url: _JudgeUrl = None
    judge_parallel: _JudgeParallel = None
    judgements: Annotated[
        int | None, Parameter(help="How often each answer is judged; in an arena, each order of two answers.")
    ] = None
    rubric: _Rubric = None
