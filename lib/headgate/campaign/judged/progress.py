"""How far a run with a judge has come, and what it came to."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.campaign.judged.figures import JudgedPair
from headgate.statistics import Agreement


@dataclass(frozen=True, slots=True)
class JudgedProgress:
    """A run at one moment.

    Attributes:
        campaign: its name.
        state: `running`, `draining` or `stopped`.
        samples: to be taken by this run.
        recorded: of them, durable.
        rollouts: in progress.
        unjudged: answers that wait for the judge, or are with it.
        stored: visible in the store.
        pairs: counts by model and environment, those of earlier runs included.
    """

    campaign: str
    state: str
    samples: int
    recorded: int
    rollouts: int
    unjudged: int
    stored: int
    pairs: tuple[JudgedPair, ...]

    @property
    def share(self) -> float:
        """How much is done, from 0 to 1."""
        return self.recorded / self.samples if self.samples else 1.0


@dataclass(frozen=True, slots=True)
class JudgedResult:
    """What a run did.

    Attributes:
        progress: as it was at the end.
        samples: recorded by this run.
        scored: of them, those with a score.
        stored: of its spool, visible in the store.
        spooled: left in the journal.
        open_tasks: samples that are begun and not recorded; the next run takes them again.
        stopped_by: why it ended.
        stopped_early: whether it gave up because its samples kept failing.
        agreements: by environment, how far repeated judgements agree; of all samples, those of earlier runs included.
    """

    progress: JudgedProgress
    samples: int
    scored: int
    stored: int
    spooled: int
    open_tasks: int
    stopped_by: str
    stopped_early: bool
    agreements: tuple[tuple[str, Agreement], ...] = ()
