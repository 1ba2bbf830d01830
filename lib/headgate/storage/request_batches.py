"""Which request is in which batch of a provider, and its reply: kept until the sample is durable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Literal

from headgate.core import Spending
from headgate.storage.journal_database import JournalDatabase
from headgate.storage.spending import NOTHING_SPENT, SpendingBook

BatchStage = Literal["made", "uploaded", "open", "ended"]
"""The progress of a batch: journaled, its file uploaded, created at the provider, its results collected."""

RequestStage = Literal["open", "done", "now"]
"""The state of a request: in its batch, its reply collected, or to be sent at once after all."""

_KEPT_S: Final = 7 * 86_400.0
"""How long a reply is kept whose task no process takes up again."""


@dataclass(slots=True)
class BatchRecord:
    """A batch in the journal.

    Attributes:
        key: our own key, by which to find the batch at its provider.
        model: key of the model that is asked.
        made_at: wall time in seconds.
        requests: the number of its requests.
        stage: its progress.
        file_id: the provider's id of its file; empty before the upload.
        batch_id: the provider's id of the batch; empty before its creation.
        base_url: the URL of its submission; empty in a journal of an earlier version.
        credential: fingerprint of the API key of its submission.
    """

    key: str
    model: str
    made_at: float
    requests: int
    stage: BatchStage = "made"
    file_id: str = ""
    batch_id: str = ""
    base_url: str = ""
    credential: str = ""


@dataclass(slots=True)
class BatchedRequest:
    """A request that was put into a batch.

    Attributes:
        task_id: id of the task, or task stage, that makes it.
        number: its number among the task's requests, from 1.
        digest: digest of its content.
        sample: task id of the sample that it is for.
        batch: key of its batch.
        stage: its state.
    """

    task_id: str
    number: int
    digest: str
    sample: str
    batch: str
    stage: RequestStage = "open"

    @property
    def custom_id(self) -> str:
        """Its id at the provider."""
        return f"{self.task_id}.{self.number}"


class RequestBatches:
    """Keeps batches and their requests. Owned by a journal; each change is a separate, durable transaction."""

    def __init__(
        self,
        db: JournalDatabase,
        holder: str,
        transaction: Callable[..., AbstractContextManager[None]],
        spending: SpendingBook,
    ) -> None:
        self._db = db
        self._holder = holder
        self._transaction = transaction
        self._spending = spending
        self._is_used = False

    def load(self, now: float) -> tuple[list[BatchRecord], list[BatchedRequest]]:
        """Return what this holder has or has taken over; what is no longer useful is forgotten."""
        with self._transaction():
            self._db.run("drop_old_batches", {"before": now - _KEPT_S})
            self._db.run("drop_lone_requests")
        batches = [BatchRecord(*row) for row in self._db.run("batches_of", {"holder": self._holder})]
        requests = [BatchedRequest(*row) for row in self._db.run("batched_of", {"holder": self._holder})]
        self._is_used = self._is_used or self._db.run("any_batched").fetchone() is not None
        return batches, requests

    def add(self, batch: BatchRecord, requests: Sequence[BatchedRequest]) -> None:
        """Record the requests that are about to be submitted as a batch."""
        with self._transaction(durable=True):
            made = (batch.key, self._holder, batch.model, batch.made_at, batch.requests, batch.stage)
            self._db.run("add_request_batch", (*made, batch.base_url, batch.credential))
            rows = [(one.task_id, one.number, one.digest, one.sample, one.batch, one.stage) for one in requests]
            self._db.many("add_batched", rows)
        self._is_used = True

    def reached(self, batch: BatchRecord) -> None:
        """Record the progress of a batch."""
        with self._transaction(durable=True):
            self._db.run("set_request_batch", (batch.stage, batch.file_id, batch.batch_id, batch.key))

    def undo(self, batch: BatchRecord) -> None:
        """Forget a batch that was never submitted: its requests are made again as if it had not existed."""
        with self._transaction(durable=True):
            self._db.run("drop_request_batch", {"key": batch.key})
            self._db.run("drop_lone_requests")

    def ended(
        self,
        requests: Iterable[tuple[BatchedRequest, str | None]],
        spent: Mapping[str, Spending] = NOTHING_SPENT,
        now: float = 0.0,
    ) -> None:
        """Record replies to requests, None for a request to be sent at once, and what models spent on them."""
        rows = [("now" if reply is None else "done", reply or "", one.task_id, one.number) for one, reply in requests]
        with self._transaction(durable=True):
            self._db.many("set_batched", rows)
            counted = self._spending.count(spent, now) if spent else None
        if counted is not None:
            self._spending.counted(counted)

    def reply(self, request: BatchedRequest) -> str:
        """Return the reply to a request; empty if there is none."""
        row = self._db.run("batched_reply", (request.task_id, request.number)).fetchone()
        return "" if row is None else str(row[0])

    def keep(self, request: BatchedRequest, reply: str) -> None:
        """Keep the reply to a request outside of batches: its sample waits for another request, which is in one."""
        with self._transaction():
            values = (request.task_id, request.number, request.digest, request.sample, "", "done")
            self._db.many("add_batched", [values])
            self._db.many("set_batched", [("done", reply, request.task_id, request.number)])
        self._is_used = True

    def kept(self, task_id: str, number: int, digest: str) -> str:
        """Return the kept reply to a request; empty if there is none, or it answers another question."""
        row = self._db.run("kept_reply", (task_id, number)).fetchone()
        return "" if row is None or row[0] != digest else str(row[1])

    # Inside of the journal's transactions.

    def forget(self, samples: Iterable[str]) -> None:
        """Forget the requests of samples that are durable or no longer wanted."""
        if self._is_used:
            self._db.many("drop_batched", [(sample,) for sample in samples])
            self._db.run("drop_ended_batches")

    def abandon(self, holder: str) -> None:
        """Free a holder's batches."""
        self._db.run("abandon_request_batches", {"holder": holder})

    def adopt(self) -> None:
        """Take over the batches that no holder has."""
        self._is_used |= bool(self._db.run("adopt_request_batches", {"holder": self._holder}).rowcount)
