"""A writer that is killed: it opens tasks, accepts samples and stores batches, and says what it was promised."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headgate.core import Sample, Task, new_trace_id
from headgate.storage import Journal, Opening, SampleStore, open_store

CAMPAIGN: Final = "bench-store"
MODEL: Final = "bench/writer@main"
_EPOCH: Final = 1_767_225_600.0


@dataclass(frozen=True, slots=True)
class Writer:
    """What one life of the writer works on.

    Attributes:
        folder: of journal and store, shared by all lives.
        environments: that its samples are spread over.
        accept_rows: samples per acceptance.
        batch_rows: samples per stored batch.
    """

    folder: Path
    environments: int
    accept_rows: int
    batch_rows: int

    def journal(self) -> Journal:
        """Return the journal, opened by this process."""
        return Journal(self.folder / "journal", CAMPAIGN)

    def store(self) -> SampleStore:
        """Return the sample store."""
        return open_store(str(self.folder / "samples"))

    def names(self) -> list[str]:
        """Return the names of the environments."""
        return [f"bench:free-{number:02d}" for number in range(self.environments)]


def sample_of(task: Task) -> Sample:
    """Return a made-up sample of a task."""
    return Sample(
        task_id=task.task_id,
        campaign=task.campaign,
        model=task.model,
        environment=task.environment,
        sequence=task.sequence,
        index=task.index,
        seed=task.seed,
        stage=task.stage,
        score=0.5,
        success=False,
        why="half",
        error_kind=None,
        error=None,
        started_at=task.due_at,
        finished_at=task.due_at + 1.0,
        latency_s=1.0,
        queue_wait_s=0.0,
        request_wait_s=0.0,
        prompt_tokens=700,
        completion_tokens=120,
        turns=1,
        attempts=1,
        trace_id=new_trace_id(),
        conversation="[]",
    )


async def _write(writer: Writer) -> None:
    """Work until killed. A line is written only after what it says is promised.

    Lines are `ready`, `accepted` with task ids, and `stored` with a batch id.
    """
    _say("ready")
    journal, store = writer.journal(), writer.store()
    names = writer.names()
    tasks = journal.adopt(names, [MODEL])
    at = _EPOCH
    while True:
        wanted = [Opening(MODEL, names[n % len(names)], at, 0.0, 1_000) for n in range(writer.accept_rows)]
        tasks += [opened for opened in journal.open(wanted) if isinstance(opened, Task)]
        accepted = journal.accept([sample_of(task) for task in tasks], at)
        _say(f"accepted {' '.join(sorted(accepted))}")
        tasks = []
        at += 1.0
        while journal.spool_state().rows >= writer.batch_rows:
            await store_one(journal, store, writer.batch_rows, lambda batch_id: _say(f"stored {batch_id}"))


async def store_one(
    journal: Journal, store: SampleStore, rows: int, told: Callable[[str], None] = lambda _batch_id: None
) -> bool:
    """Store one batch of the spool, as the sink does; return whether there was one.

    `told` gets the batch's id as soon as the store has confirmed it, before the spool forgets it.
    """
    batch = journal.next_batch(rows)
    if batch is None:
        return False
    await store.put_batch(batch.batch_id, batch.samples)
    told(batch.batch_id)
    journal.batch_stored(batch.batch_id)
    return True


def _say(line: str) -> None:
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


if __name__ == "__main__":
    folder, *numbers = sys.argv[1:]
    asyncio.run(_write(Writer(Path(folder), *map(int, numbers))))
