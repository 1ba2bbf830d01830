"""Keeps the tally current: folds in what is new in the store, and keeps it in `summary/latest.json`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

import polars as pl

from headgate.core import errors
from headgate.storage.manifest import FORMAT, Manifest, Part, sealed, unsealed
from headgate.storage.objects import SUMMARY_KEY, MissingObjectError, ObjectStore
from headgate.storage.query import read_parts
from headgate.storage.summary import Summary
from headgate.storage.tally import ROW_COLUMNS, Tally
from headgate.storage.visibility import Problem, Visible

_FOLD_ROWS: Final = 200_000
"""Rows folded at once: enough that a fold's fixed cost vanishes, few enough that memory stays flat in a rebuild."""


@dataclass(frozen=True, slots=True)
class Counted:
    """A tally with the manifests whose rows are all in it: the watermark."""

    tally: Tally
    manifests: frozenset[str]
    problems: tuple[Problem, ...] = ()


_NOTHING: Final = Counted(Tally.empty(), frozenset())


class SummaryLedger:
    """The tally of one store, in memory and in `summary/latest.json`. Owned by the store; calls must not overlap.

    Writers of the object may overwrite one another: each wrote a tally with its own watermark, and both are true.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._counted: Counted | None = None

    def refreshed(self, visible: Visible, now: float) -> Counted:
        """Return the tally of what is visible; only manifests that are new since the last one are read."""
        before, told = (self._counted, ()) if self._counted is not None else self._load()
        self._counted = self._caught_up(before, visible, now)
        return replace(self._counted, problems=(*told, *self._counted.problems))

    def rebuilt(self, visible: Visible, now: float) -> Counted:
        """Return the tally of what is visible, every part read again."""
        self._counted = self._caught_up(_NOTHING, visible, now)
        return self._counted

    def save(self, summary: Summary) -> None:
        """Write `summary/latest.json`: the summary for readers, and the current tally to go on from."""
        counted = self._counted or _NOTHING
        content = {
            "format": FORMAT,
            "generated_at": summary.generated_at,
            "manifests": sorted(counted.manifests),
            "pairs": [asdict(pair) for pair in summary.pairs],
            "tally": counted.tally.fields(),
        }
        self._objects.put_many([(SUMMARY_KEY, sealed(content))])

    def _load(self) -> tuple[Counted, tuple[Problem, ...]]:
        try:
            content = unsealed(self._objects.get(SUMMARY_KEY), SUMMARY_KEY)
            return Counted(Tally.of_fields(content["tally"]), frozenset(content["manifests"])), ()
        except MissingObjectError:
            return _NOTHING, ()
        except (errors.CorruptDataError, KeyError, TypeError, pl.exceptions.PolarsError) as error:
            # The parts are the truth and this object is derived from them: it is made anew.
            return _NOTHING, (Problem(SUMMARY_KEY, f"made again from the parts: {error}"),)

    def _caught_up(self, before: Counted, visible: Visible, now: float) -> Counted:
        included = {one for one, manifest in visible.manifests.items() if _is_included(manifest, before.manifests)}
        fresh = [manifest for one, manifest in visible.manifests.items() if one not in included]
        owners = {part.path: manifest.batch_id for manifest in fresh for part in manifest.parts}
        problems: list[Problem] = []
        tally = before.tally
        for rows in _gathered(self._objects, [part for manifest in fresh for part in manifest.parts], problems):
            tally = tally.folded(rows, now)
        # A manifest with a part that cannot be read is tried again next time; the ranges keep the others from
        # counting twice.
        failed = {owners[problem.path] for problem in problems}
        complete = included | {manifest.batch_id for manifest in fresh} - failed
        return Counted(tally, frozenset(complete), (*visible.problems, *problems))


def _is_included(manifest: Manifest, counted: frozenset[str]) -> bool:
    """True when every row is counted: the manifest was, or it is a compaction of manifests that all were."""
    if manifest.batch_id in counted:
        return True
    return bool(manifest.merges) and counted.issuperset(manifest.merges)


def _gathered(objects: ObjectStore, parts: Sequence[Part], problems: list[Problem]) -> Iterator[pl.DataFrame]:
    """Yield the rows of the parts in frames of about `_FOLD_ROWS`."""
    frames: list[pl.DataFrame] = []
    for _, rows in read_parts(objects, parts, ROW_COLUMNS, problems):
        frames.append(rows)
        if sum(frame.height for frame in frames) >= _FOLD_ROWS:
            yield pl.concat(frames)
            frames = []
    if frames:
        yield pl.concat(frames)
