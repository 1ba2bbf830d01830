"""What kills have cost: jobs lost, counted twice, run again, and promises that were not kept."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from headgate.jobqueue.job import JobState
from headgate.jobqueue.port import Happening, HistoryEntry, JobQuery, Reader

_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Toll:
    """What became of a queue's jobs.

    Attributes:
        jobs: submitted.
        lost: not done in the end.
        counted_twice: completions accepted beyond one per job.
        ran_again: runs beyond one per job; a worker that dies after its work and before its report costs one anywhere.
        refused: results of zombies that were refused.
        broken: completions that a worker was told of and that are not recorded, and jobs claimed while claimed.
    """

    jobs: int
    lost: int
    counted_twice: int
    ran_again: int
    refused: int = 0
    broken: int = 0

    @property
    def wrong(self) -> int:
        """Everything that must not happen."""
        return self.lost + self.counted_twice + self.broken


def toll_of(reader: Reader, jobs: int, log: Path) -> Toll:
    """Return the toll of a queue, read from its history, its jobs and what its workers were told."""
    entries = _history(reader)
    done = sum(len(page) for page in _pages_of_done(reader))
    completed = Counter(entry.job_id for entry in entries if entry.what is Happening.COMPLETED)
    recorded = {(e.job_id, str(e.epoch), e.lease_id) for e in entries if e.what is Happening.COMPLETED}
    # A line that was cut off by a kill was never said.
    said = [line.split(" ") for line in log.read_text(encoding="ascii").split("\n")[:-1]]
    runs = Counter(words[1] for words in said if words[0] == "ran")
    unkept = sum(words[0] == "done" and tuple(words[1:]) not in recorded for words in said)
    return Toll(
        jobs=jobs,
        lost=jobs - done,
        counted_twice=completed.total() - len(completed),
        ran_again=runs.total() - len(runs),
        refused=sum(words[0] == "refused" for words in said),
        broken=unkept + _claimed_while_claimed(entries),
    )


def _claimed_while_claimed(entries: list[HistoryEntry]) -> int:
    running: set[str] = set()
    found = 0
    for entry in entries:
        if entry.what is Happening.CLAIMED:
            found += entry.job_id in running
            running.add(entry.job_id)
        elif entry.what in (Happening.COMPLETED, Happening.FAILED, Happening.EXPIRED, Happening.GIVEN_BACK):
            running.discard(entry.job_id)
    return found


def _history(reader: Reader) -> list[HistoryEntry]:
    entries: list[HistoryEntry] = []
    while page := reader.history(entries[-1].entry if entries else -1, _PAGE):
        entries += page
    return entries


def _pages_of_done(reader: Reader) -> list[list[str]]:
    pages: list[list[str]] = []
    after = -1
    while page := reader.jobs(JobQuery(state=JobState.DONE, after=after, limit=_PAGE)):
        pages.append([job.job_id for job in page])
        after = page[-1].seq
    return pages
