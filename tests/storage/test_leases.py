"""One journal samples a campaign's environments at a time; the store knows which."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.core import errors
from headgate.storage import LEASE_S, Journal, SampleStore
from headgate.storage.objects import ObjectInfo, ObjectStore
from headgate.storage.store import renew_lease
from tests.storage.places import IN_BOTH


class Aged:
    """An object store as it is `by_s` later: what was written before is so much older than what is written now."""

    def __init__(self, objects: ObjectStore, by_s: float) -> None:
        self._objects = objects
        self._by_s = by_s
        self._new: set[str] = set()

    def put_many(self, objects: list[tuple[str, bytes]]) -> None:
        self._objects.put_many(objects)
        self._new |= {key for key, _ in objects}

    def listing(self, prefix: str) -> Iterator[ObjectInfo]:
        for one in self._objects.listing(prefix):
            later_s = self._by_s if one.key in self._new else 0.0
            yield ObjectInfo(one.key, one.size_bytes, one.modified_at + later_s)

    def get_many(self, keys: list[str]) -> Iterator[bytes | errors.StoreError]:
        return self._objects.get_many(keys)


@pytest.fixture
def journals(tmp_path: Path) -> Iterator[list[Journal]]:
    """A journal by two holders, and another one of the same campaign."""
    opened = [Journal(tmp_path / "a", "c.1"), Journal(tmp_path / "a", "c.1"), Journal(tmp_path / "b", "c.1")]
    yield opened
    for journal in opened:
        journal.close()


@IN_BOTH
async def test_a_second_journal_is_refused_while_the_first_samples_the_same_environments(
    store: SampleStore, journals: list[Journal]
) -> None:
    first, same, other = (journal.lease() for journal in journals)
    await store.renew(*first, ["x", "y"], is_new=True)
    await store.renew(*same, ["x", "y"], is_new=True)
    await store.renew(*other, ["z"], is_new=True)
    with pytest.raises(errors.CampaignInUseError, match="samples y of this campaign") as told:
        await store.renew(*other, ["y", "z"], is_new=True)
    assert str(journals[0].place) in told.value.message
    await store.give_back(first[0])
    await store.give_back(same[0])
    await store.renew(*other, ["y", "z"], is_new=True)


def test_a_lease_that_is_not_renewed_ends_by_the_store_s_own_clock(
    objects: ObjectStore, journals: list[Journal]
) -> None:
    first, _, other = (journal.lease() for journal in journals)
    renew_lease(objects, *first, ["x"], is_new=True)
    with pytest.raises(errors.CampaignInUseError):
        renew_lease(Aged(objects, LEASE_S - 60.0), *other, ["x"], is_new=True)  # type: ignore[arg-type]
    renew_lease(Aged(objects, LEASE_S + 60.0), *other, ["x"], is_new=True)  # type: ignore[arg-type]


def test_a_lease_from_a_clock_that_was_ahead_keeps_nobody_out(objects: ObjectStore, journals: list[Journal]) -> None:
    first, _, other = (journal.lease() for journal in journals)
    renew_lease(objects, *first, ["x"], is_new=True)
    with pytest.raises(errors.CampaignInUseError):
        renew_lease(Aged(objects, -60.0), *other, ["x"], is_new=True)  # type: ignore[arg-type]
    renew_lease(Aged(objects, -400 * 86_400.0), *other, ["x"], is_new=True)  # type: ignore[arg-type]


def test_of_two_that_meet_after_an_outage_exactly_one_gives_way(objects: ObjectStore, journals: list[Journal]) -> None:
    first, _, other = (journal.lease() for journal in journals)
    earlier, later = sorted((first, other))
    objects.put_many([(key, f"{place}\nx".encode()) for key, place in (first, other)])
    renew_lease(objects, *earlier, ["x"], is_new=False)
    with pytest.raises(errors.CampaignInUseError):
        renew_lease(objects, *later, ["x"], is_new=False)


def test_the_identity_of_a_journal_outlives_its_processes(tmp_path: Path) -> None:
    names = []
    for _ in range(2):
        journal = Journal(tmp_path, "c")
        names.append(journal.lease()[0].rpartition("/")[2].partition(".")[0])
        journal.close()
    assert names[0] == names[1]
