"""The sample store: stores batches of samples, each visible all at once and exactly once; and reads them."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import polars as pl

from headgate.config import Settings
from headgate.core import CLOCK_TOLERANCE_S, DAY_S, Sample, Secret, errors, require_agreement
from headgate.core.audit import record_change
from headgate.storage import compaction, deletion, frames, invalidation
from headgate.storage.batches import StoredBatch, put_batch
from headgate.storage.manifest import ManifestLog, Part, Visible
from headgate.storage.mark_log import MarkLog
from headgate.storage.marks import ROWS, SCORING, Mark
from headgate.storage.objects import PROBE, FolderObjects, ObjectStore, checked_batch_id
from headgate.storage.sample_index import SampleIndex, TextSearch, whole_sample
from headgate.storage.schema import row_checks
from headgate.storage.selection import Chosen
from headgate.storage.summary import History, RecentSample, Summary, SummaryLedger, history_of, summary_of

if TYPE_CHECKING:
    from headgate.storage.query import QueryResult

_SERVED: Final = ("served_model", "system_fingerprint")

LEASE_S: Final = 180.0
"""A lease not renewed for this long, by the store's clock, has expired, which bounds the wait for a dead process.

One in the future was written by a wrong clock, and has expired as well."""


def renew_lease(objects: ObjectStore, key: str, place: str, environments: Collection[str], *, is_new: bool) -> None:
    """Write the lease of a process, and raise `CampaignInUseError` if another journal samples one of the environments.

    Each process writes before reading, so if two start at once, at least one sees the other. If two are already
    running, because the store was unavailable, the one whose key sorts later gives way. The key is that of
    `Journal.lease`: processes that share a journal share its tasks, and do not conflict.
    """
    objects.put_many([(key, "\n".join([place, *environments]).encode())])
    folder, _, name = key.rpartition("/")
    ours = f"{folder}/{name.partition('.')[0]}."
    renewed_at = {one.key: one.modified_at for one in objects.listing(f"{folder}/")}
    now = renewed_at.get(key, 0.0)
    held = (one for one, at in renewed_at.items() if now - LEASE_S < at <= now + CLOCK_TOLERANCE_S)
    others = (one for one in held if not one.startswith(ours))
    for data in objects.get_many([one for one in others if is_new or one < key]):
        place, *sampled = data.decode().split("\n") if isinstance(data, bytes) else [""]  # one has just ended
        if shared := ", ".join(sorted({*sampled} & {*environments})[:3]):
            raise errors.CampaignInUseError(f"another journal, {place}, samples {shared} of this campaign")


_FIRST: Final = b"first"


@dataclass(frozen=True, slots=True)
class Probe:
    """The capabilities of a storage location.

    Attributes:
        conditional_puts: whether it refuses to create an object twice. Without that, a batch is still stored once,
            since a retry writes the same objects; but samples cannot be compacted.
        warning: a sentence for the log if a capability is missing, otherwise None.
    """

    url: str
    conditional_puts: bool
    warning: str | None


def probe(objects: ObjectStore) -> Probe:
    """Return the capabilities of a storage location, found by trying; leaves nothing behind."""
    key = f"{PROBE}{secrets.token_hex(8)}"
    was_created = objects.create(key, _FIRST)
    try:
        written_at = [found.modified_at for found in objects.listing(PROBE) if found.key == key]
        if written_at:
            require_agreement(time.time(), written_at[0], f"the sample store {objects.url}")
        was_replaced = objects.create(key, b"second")
        if not was_created or objects.get(key) != (b"second" if was_replaced else _FIRST):
            raise errors.StoreError(f"the sample store {objects.url} does not return what was written to it")
    finally:
        objects.delete_many([key])
    warning = None
    if was_replaced:
        warning = f"{objects.url} ignores If-None-Match: samples are still stored once, but cannot be compacted"
    return Probe(objects.url, not was_replaced, warning)


_ADDRESS: Final = re.compile(r"(?P<scheme>s3|r2)://(?P<bucket>[A-Za-z0-9][A-Za-z0-9._-]{1,62})(?:/(?P<prefix>.*))?\Z")
_R2_HOST: Final = ".r2.cloudflarestorage.com"


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """The address and credentials of a sample store.

    Attributes:
        url: a folder, `s3://bucket/prefix`, or `r2://bucket/prefix` (with the account in `R2_ACCOUNT_ID`).
        endpoint_url: endpoint of the S3 API; None for AWS, or the one in `AWS_ENDPOINT_URL`.
        region: None for the one in the environment, or `auto` for R2.
        key: access key id; None for the environment's (`AWS_…`, `R2_WRITE_ACCESS_KEY_ID` for R2).
        secret: secret access key, likewise.
        call_timeout_s: time limit of every request, retries included; large objects get longer.
    """

    url: str
    endpoint_url: str | None = None
    region: str | None = None
    key: Secret | None = None
    secret: Secret | None = None
    call_timeout_s: float = 30.0


def open_objects(location: StoreLocation, environ: Mapping[str, str] = os.environ) -> ObjectStore:
    """Return the storage that `location` names, without contacting it."""
    if "://" not in location.url:
        return FolderObjects(Path(location.url).expanduser())
    found = _ADDRESS.match(location.url)
    if found is None:
        raise errors.InvalidSettingError(
            f"store {location.url!r} is not the address of a sample store",
            next_step="Give a folder, s3://bucket/prefix, or r2://bucket/prefix.",
        )
    # Imported only here: the S3 client takes longer to import than everything else together.
    from headgate.storage.s3 import S3Objects  # noqa: PLC0415

    endpoint = location.endpoint_url or (_r2_endpoint(environ) if found["scheme"] == "r2" else None)
    is_r2 = bool(endpoint) and _R2_HOST in str(endpoint)
    opened = replace(
        location,
        endpoint_url=endpoint,
        region=location.region or ("auto" if is_r2 else None),
        key=location.key or (_secret(environ, "R2_WRITE_ACCESS_KEY_ID") if is_r2 else None),
        secret=location.secret or (_secret(environ, "R2_WRITE_SECRET_ACCESS_KEY") if is_r2 else None),
    )
    return S3Objects(found["bucket"], found["prefix"] or "", opened)


def _r2_endpoint(environ: Mapping[str, str]) -> str:
    account = environ.get("R2_ACCOUNT_ID", "")
    if not account:
        raise errors.InvalidSettingError(
            "r2:// needs the account, and R2_ACCOUNT_ID is not set",
            next_step="Set R2_ACCOUNT_ID, or use s3:// with an endpoint.",
        )
    return f"https://{account}{_R2_HOST}"


def _secret(environ: Mapping[str, str], name: str) -> Secret | None:
    return Secret(environ[name]) if environ.get(name) else None


_T = TypeVar("_T")


class SampleStore:
    """Samples in a folder or bucket. Several processes may write and read one store at once.

    Most methods are coroutines that work in threads and end within the storage's deadlines. `now` is wall time in
    seconds since the epoch.

    Raises (all methods):
        errors.StoreError: if the storage failed, stalled or is full; the call can be retried.
        errors.StoreNotWritableError: if the configuration must be corrected first.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self.url = objects.url
        """The address, without secrets."""
        self._objects = objects
        self._log = ManifestLog(objects)
        self._marks = MarkLog(objects)
        self._ledger = SummaryLedger(objects)
        # Protects the three above, which cache what they read; writers do not need it.
        self._reading = threading.Lock()

    async def probe(self) -> Probe:
        """Return the storage's capabilities, found by trying; call it once before a campaign starts.

        Raises:
            errors.StoreNotWritableError: if nothing can be written.
            errors.ClockDisagreesError: if the storage's clock differs from this machine's.
        """
        return await asyncio.to_thread(probe, self._objects)

    def prepare(self) -> None:
        """Import the validation of batches in a thread, which saves the first batch most of a second."""
        threading.Thread(target=row_checks, name="headgate-schema", daemon=True).start()

    async def put_batch(self, batch_id: str, samples: Sequence[Sample]) -> StoredBatch:
        """Store a batch and return it as stored; the rows are visible and durable when this returns.

        Idempotent: another call with the same id, whatever the outcome of the first, returns the batch as stored.

        Raises:
            errors.InvalidInputError: if the id cannot name a batch.
        """
        return await asyncio.to_thread(put_batch, self._objects, checked_batch_id(batch_id), samples)

    async def visible(self) -> Visible:
        """Return the manifests and parts that are visible now."""
        return await asyncio.to_thread(self._visible)

    async def scan(
        self,
        environments: Iterable[str] | None = None,
        since: float | None = None,
        until: float | None = None,
        columns: Sequence[str] | None = None,
        *,
        everything: bool = False,
        original: bool = False,
    ) -> frames.Scan:
        """Return samples of the environments that ended in [since, until), each task once.

        Args:
            environments: names of environments; None for all.
            since: wall time; None for no limit.
            until: wall time; None for no limit.
            columns: names of columns; None for all.
            everything: include invalidated samples, with two further columns, `invalid` and `resample`.
            original: use the scores with which samples were stored, ignoring later ones.

        Raises:
            errors.InvalidInputError: if a column is not one of a sample.
        """
        chosen = Chosen(environments=frozenset(environments or ()), since=since, until=until, original=original)
        return await self._read(
            lambda visible: frames.scan(self._objects, visible, chosen, columns, everything=everything)
        )

    async def verify(self) -> frames.Verification:
        """Read every visible object, compare it with its checksum, and return the result."""
        return await self._read(lambda visible: frames.verify(self._objects, visible))

    async def query(self, sql: str) -> QueryResult:
        """Return the result of one SELECT over the view `samples`: those that count, with their current scores.

        Raises:
            errors.InvalidInputError: if the SQL cannot be run or is not a SELECT.
        """
        from headgate.storage.query import query  # noqa: PLC0415 - imports DuckDB, which only queries need

        return await self._read(lambda visible: query(self._objects, visible, sql))

    async def indexed(self, index: SampleIndex, within_s: float = 1.0) -> SampleIndex:
        """Return an index of what is visible now, as far as it can be read in `within_s`."""
        return await self._read(lambda visible: index.caught_up(self._objects, visible, within_s))

    async def search(self, search: TextSearch, parts: Sequence[Part], within_s: float = 0.5) -> int:
        """Search further parts for a text, for `within_s` seconds; return how many are left."""
        return await asyncio.to_thread(search.go_on, self._objects, parts, within_s)

    async def sample(self, part: Part, task_id: str) -> Mapping[str, Any] | None:
        """Return every column of a sample as stored; None if the part no longer has it."""
        return await asyncio.to_thread(whole_sample, self._objects, part, task_id)

    async def summary(self, now: float, *, rebuild: bool = False, save: bool = True) -> Summary:
        """Return the summary as of `now` and, with `save`, write it to `summary/latest.json`; reads only new parts."""

        def made() -> Summary:
            with self._reading:
                visible = self._look()
                counted = self._ledger.rebuilt(visible, now) if rebuild else self._ledger.refreshed(visible, now)
                summary = summary_of(counted.tally, now, counted.problems)
                if save:
                    self._ledger.save(summary)
            return summary

        return await asyncio.to_thread(made)

    async def history(self, now: float) -> History:
        """Return the history from which a campaign resumes, as of `now`; reads only parts since the last summary."""

        def made() -> History:
            with self._reading:
                counted = self._ledger.refreshed(self._look(), now)
            return history_of(counted.tally, now, counted.problems)

        return await asyncio.to_thread(made)

    async def task_scores(self, campaign: str) -> list[tuple[str, str, int, float]]:
        """Return model, environment, sequence and score of each scored sample of a campaign, by sequence."""
        columns = ["campaign", "model", "environment", "sequence", "score"]
        rows = (await self.scan(columns=columns)).frame

        def scored() -> list[tuple[Any, ...]]:
            ours = rows.filter(pl.col("campaign") == campaign, pl.col("score").is_not_null())
            return _rows_of(ours.sort("sequence").select("model", "environment", "sequence", "score"))

        return await asyncio.to_thread(scored)

    async def to_resample(self, campaign: str, *, every: bool = False) -> list[tuple[str, str, int, str]]:
        """Return model, environment, sequence and next stage of tasks to sample again after an invalidation.

        Tasks with another sample that counts are left out, and unless `every` those invalidated without `--resample`.
        """
        if not every and not any(one.resample for one in (await self.visible()).marks.log):
            return []
        task = ["model", "environment", "sequence"]
        rows = (await self.scan(columns=["campaign", "stage", "score", *task], everything=True)).frame
        ours = rows.filter(pl.col("campaign") == campaign, pl.col("stage").str.contains(r"^sample(\.\d+)?$"))
        run = pl.col("stage").str.extract(r"(\d+)$").cast(pl.Int64).fill_null(1)
        counts = ~pl.col("invalid") & pl.col("score").is_not_null()
        gone = pl.col("invalid" if every else "resample").filter("invalid").last()  # the last one says
        cells = ours.sort(run).group_by(task).agg(gone=gone, counts=counts.any(), runs=run.max())
        wanted = (
            cells.filter("gone", ~pl.col("counts")).sort(task).select(*task, pl.format("sample.{}", pl.col("runs") + 1))
        )
        return wanted.rows()

    async def invalid(self, campaign: str, since: float) -> list[tuple[str, str, float, float, int]]:
        """Return model, environment, end, score and index of scored samples since `since` that no longer count."""
        columns = ["campaign", "model", "environment", "finished_at", "score", "index"]
        rows = (await self.scan(since=since, columns=columns, everything=True)).frame
        ours = rows.filter("invalid", pl.col("campaign") == campaign, pl.col("score").is_not_null())
        return ours.select(columns[1:]).rows()

    async def recent(self, campaign: str, since: float, most: int) -> list[RecentSample]:
        """Return the newest samples of a campaign that ended since `since`, at most `most`, ordered by their end."""
        columns = ["campaign", "model", "environment", "index", "score", "finished_at", *_SERVED]
        rows = (await self.scan(since=since, columns=columns)).frame.filter(pl.col("campaign") == campaign)
        served = pl.concat_str(_SERVED, separator=" ", ignore_nulls=True)
        chosen = rows.select("model", "environment", "index", "score", "finished_at", served.alias("served_by"))
        return list(map(RecentSample._make, chosen.sort("finished_at").tail(most).rows()))

    async def spent(self, since: float) -> list[tuple[str, str, float, int, int, int, int | None]]:
        """Return task, model, end, prompt and completion tokens, attempts and cost of each sample since `since`."""
        columns = ["task_id", "model", "finished_at", "prompt_tokens", "completion_tokens", "attempts", "cost_micro"]
        rows = (await self.scan(since=since, columns=columns, everything=True)).frame.select(columns)
        return await asyncio.to_thread(_rows_of, rows)

    async def compact(self, now: float, policy: compaction.CompactionPolicy | None = None) -> compaction.Compacted:
        """Merge small parts until none is left to merge, sweep, and return what was done.

        Raises:
            errors.StoreError: if the storage ignores conditional puts, which keep two compactions from merging at once.
        """
        return await asyncio.to_thread(self._compact, now, policy or compaction.CompactionPolicy())

    async def forget(
        self,
        chosen: Chosen,
        now: float,
        *,
        task_ids: Collection[str] | None = None,
        conversations_only: bool = False,
        dry_run: bool = False,
    ) -> deletion.Forgotten:
        """Delete samples, only of these tasks if `task_ids` is given, and return how much was, or would be, deleted.

        With `conversations_only` the samples stay, with their scores and everything else.
        """
        what = deletion.Forgetting(chosen, task_ids, conversations_only)
        return await asyncio.to_thread(self._forget, what, now, dry_run=dry_run)

    async def invalidate(
        self, what: invalidation.Invalidation, now: float, *, dry_run: bool = False
    ) -> invalidation.Invalidated:
        """Take samples out of every count, or put them back, and return what was, or would be, marked.

        The samples stay stored, with a mark that records who, when and why. Idempotent.
        """
        return await self._read(
            lambda visible: invalidation.invalidate(self._objects, self._marks, visible, what, now, dry_run=dry_run)
        )

    async def parts(self, chosen: Chosen, task_ids: Collection[str] | None = None) -> AsyncIterator[pl.DataFrame]:
        """Yield the chosen samples that count, part by part: all columns, and the source of the score (`scorer`).

        A task that is stored twice is yielded twice. Unreadable parts are skipped.
        """
        visible = await self.visible()
        scorers = visible.marks.state.select("task_id", "scorer")

        def read(part: Part) -> pl.DataFrame | None:
            return next((rows for _, rows in frames.read_parts(self._objects, [part], None, [])), None)

        for part in visible.parts:
            if chosen.wants(part) and (rows := await asyncio.to_thread(read, part)) is not None:
                found = chosen.rows(visible.marks.applied(rows))
                if task_ids is not None:
                    found = found.filter(pl.col("task_id").is_in(list(task_ids)))
                yield found.join(scorers, on="task_id", how="left", maintain_order="left")

    async def put_scores(self, mark: Mark, scores: Sequence[Mapping[str, Any]], number: int) -> None:
        """Put new scores of samples into force.

        Args:
            mark: the mark under which they are stored.
            scores: for each sample, `task_id` and the columns of `marks.SCORING`.
            number: number of this call among those with this mark.
        """
        rows = pl.DataFrame(list(scores), schema={name: ROWS[name] for name in ("task_id", *SCORING)})
        await asyncio.to_thread(self._marks.add, mark, rows.with_columns(mark=pl.lit(mark.mark)), number)

    async def sweep(
        self, now: float, *, grace_s: float = deletion.GRACE_S, forget_s: float = deletion.FORGET_S
    ) -> deletion.Swept:
        """Delete what has been invisible for `grace_s`, and return how much that was.

        Raises:
            errors.ClockDisagreesError: if the storage's clock differs from ours, which could make new parts look old.
        """
        await self.probe()
        return await self._read(
            lambda visible: deletion.sweep(self._objects, visible, now, grace_s=grace_s, forget_s=forget_s)
        )

    async def renew(self, key: str, place: str, environments: Collection[str], *, is_new: bool = False) -> None:
        """Renew a process's lease of a campaign; raises `CampaignInUseError` as `renew_lease` does."""
        await asyncio.to_thread(renew_lease, self._objects, key, place, environments, is_new=is_new)

    async def give_back(self, key: str) -> None:
        """End a lease."""
        await asyncio.to_thread(self._objects.delete_many, [key])

    def close(self) -> None:
        """Close connections; idempotent. Calls in flight fail."""
        self._objects.close()

    async def _read(self, use: Callable[[Visible], _T]) -> _T:
        return await asyncio.to_thread(lambda: use(self._visible()))

    def _visible(self) -> Visible:
        with self._reading:
            return self._look()

    def _look(self) -> Visible:
        visible, (marks, problems) = self._log.visible(), self._marks.marks()
        return replace(visible, marks=marks, problems=(*visible.problems, *problems))

    def _forget(self, what: deletion.Forgetting, now: float, *, dry_run: bool) -> deletion.Forgotten:
        self._require_conditional_puts()
        while True:
            done = deletion.forget(self._objects, self._visible(), what, now, dry_run=dry_run)
            if done is not None:
                break
        if not (dry_run or what.conversations_only or done.problems):
            visible = self._visible()
            if visible.marks.log:  # remove the marks of deleted samples as well
                left = frames.scan(self._objects, visible, Chosen(), ["task_id"], everything=True).frame
                gone = visible.marks.rows.join(left, on="task_id", how="anti")["task_id"].to_list()
                if gone:
                    with self._reading:
                        self._marks.merge(without=gone)
        return done

    def _require_conditional_puts(self) -> None:
        found = probe(self._objects)
        if not found.conditional_puts:
            raise errors.StoreError(
                f"{self.url} ignores If-None-Match, so two compactions could merge the same parts",
                next_step="Leave the samples as they are, or move them to a store that honours conditional puts.",
            )

    def _compact(self, now: float, policy: compaction.CompactionPolicy) -> compaction.Compacted:
        self._require_conditional_puts()
        total, conversations = compaction.Compacted(), 0
        if policy.conversation_days is not None:
            until = now - policy.conversation_days * DAY_S
            old = deletion.Forgetting(Chosen(until=until), conversations_only=True)
            conversations = self._forget(old, now, dry_run=False).samples
        while True:
            done = compaction.compact(self._objects, self._visible(), policy, now)
            total = total.followed_by(done)
            if done.batch_id is None:
                break
        swept = deletion.sweep(self._objects, self._visible(), now)
        with self._reading:
            self._marks.tidy(now - deletion.GRACE_S)
        if total.parts_before or swept.parts:
            after = f"{total.parts_after} parts, {total.duplicates} duplicates dropped, {swept.parts} parts deleted"
            record_change("samples compact", self.url, before=f"{total.parts_before} parts", after=after)
        return replace(total, swept_parts=swept.parts, conversations=conversations)


def _rows_of(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    """Return a frame's rows, slice by slice, so that other threads run in between."""
    return [row for part in frame.iter_slices() for row in part.rows()]


def open_store(location: StoreLocation | str, environ: Mapping[str, str] = os.environ) -> SampleStore:
    """Return the sample store at a location (or folder, or URL), without reading or writing anything.

    Raises:
        errors.InvalidSettingError: if the form of the address is unknown.
    """
    where = StoreLocation(location) if isinstance(location, str) else location
    return SampleStore(open_objects(where, environ))


def sample_store(settings: Settings) -> SampleStore:
    """Return the sample store that the settings name."""
    key, secret = settings.s3_access_key_id.get_secret_value(), settings.s3_secret_access_key.get_secret_value()
    return open_store(
        StoreLocation(
            settings.store,
            endpoint_url=settings.s3_endpoint_url or None,
            key=Secret(key) if key else None,
            secret=Secret(secret) if secret else None,
        )
    )
