"""Leases: capacity goes out and comes back exactly once, whatever a holder does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from headgate.core import Denied, HolderId, Lease, LeaseBook, ReleaseOutcome
from headgate.core.ids import LeaseId
from tests.examples import examples

ME = HolderId("h-me")
NAMES = ("workers", "gpu", "policy")


def _taken(book: LeaseBook, units: dict[str, int], **more: object) -> Lease:
    lease = book.acquire(ME, units, 0.0, **more)  # type: ignore[arg-type]
    assert isinstance(lease, Lease)
    return lease


def test_all_units_of_a_lease_are_granted_or_none() -> None:
    book = LeaseBook({"workers": 4, "gpu": 1})
    assert book.acquire(ME, {"workers": 2, "gpu": 2}, 0.0) == Denied("no_capacity", "gpu", 2, 1)
    assert book.available("workers") == 4
    _taken(book, {"workers": 2, "gpu": 1})
    assert (book.available("workers"), book.available("gpu")) == (2, 0)


def test_a_capacity_that_nobody_declared_is_denied_by_its_name() -> None:
    assert LeaseBook({}).acquire(ME, {"tpu": 1}, 0.0) == Denied("unknown_capacity", "tpu", 1, 0)


def test_a_second_release_is_a_duplicate_and_changes_nothing() -> None:
    book = LeaseBook({"workers": 1})
    lease = _taken(book, {"workers": 1})
    assert book.release(lease) is ReleaseOutcome.RELEASED
    _taken(book, {"workers": 1})
    assert book.release(lease) is ReleaseOutcome.DUPLICATE
    assert book.available("workers") == 0


def test_the_lease_of_a_former_life_is_refused() -> None:
    old = _taken(LeaseBook({"workers": 1}), {"workers": 1})
    book = LeaseBook({"workers": 1}, generation=2)
    assert isinstance(book.acquire(ME, {"workers": 1}, 0.0), Lease)
    assert book.release(old) is ReleaseOutcome.WRONG_GENERATION
    assert book.available("workers") == 0


def test_a_later_lease_on_the_same_task_has_a_later_epoch_also_after_a_release() -> None:
    book = LeaseBook({"workers": 2})
    epochs = []
    for _ in range(3):
        lease = _taken(book, {"workers": 1}, subject="t-1")
        epochs.append(lease.epoch)
        book.release(lease)
    epochs.append(_taken(book, {"workers": 1}, subject="t-1").epoch)
    epochs.append(_taken(book, {"workers": 1}, subject="t-1").epoch)
    assert epochs == sorted(set(epochs))


def test_units_do_not_change_with_what_the_caller_does_to_its_mapping() -> None:
    book = LeaseBook({"workers": 4})
    units = {"workers": 1}
    lease = _taken(book, units)
    units["workers"] = 3
    book.validate()
    book.release(lease)
    assert book.available("workers") == 4


def test_a_lowered_limit_waits_for_its_holders() -> None:
    book = LeaseBook({"workers": 2})
    first, second = _taken(book, {"workers": 1}), _taken(book, {"workers": 1})
    book.set_limit("workers", 1)
    book.release(first)
    assert book.acquire(ME, {"workers": 1}, 0.0) == Denied("no_capacity", "workers", 1, 0)
    book.release(second)
    _taken(book, {"workers": 1})


def test_a_limit_below_zero_is_an_error_that_shows_it() -> None:
    with pytest.raises(ValueError, match=r"limit of workers must be >= 0 \(got -1\)"):
        LeaseBook({}).set_limit("workers", -1)


def test_what_is_remembered_of_released_leases_is_bounded() -> None:
    book = LeaseBook({"workers": 1})
    leases = []
    for number in range(8_200):
        leases.append(_taken(book, {"workers": 1}, subject=f"t-{number}"))
        book.release(leases[-1])
    assert book.release(leases[-1]) is ReleaseOutcome.DUPLICATE
    assert book.release(leases[0]) is ReleaseOutcome.UNKNOWN
    sizes = [len(value) for value in (book.live, book._released)]
    assert max(sizes) <= 8_192


class Leasing(RuleBasedStateMachine):
    """Holders that take, give back, give back twice, forge and outlive; checked against a plain sum."""

    held: Bundle[Lease] = Bundle("held")
    released: Bundle[Lease] = Bundle("released")

    @initialize(limits=st.fixed_dictionaries({name: st.integers(0, 6) for name in NAMES}))
    def start(self, limits: dict[str, int]) -> None:
        self.book = LeaseBook(dict(limits), generation=3)
        self.limits = dict(limits)
        self.used = dict.fromkeys(NAMES, 0)
        self.allowed = dict(limits)

    def _unchanged(self, lease: Lease, outcome: ReleaseOutcome) -> None:
        before = dict(self.book.in_use), set(self.book.live)
        assert self.book.release(lease) is outcome
        assert (dict(self.book.in_use), set(self.book.live)) == before

    @rule(
        target=held,
        units=st.dictionaries(st.sampled_from(NAMES), st.integers(0, 4), min_size=1),
        subject=st.sampled_from(["", "t-1", "t-2"]),
        now=st.floats(0, 1e9),
    )
    def acquire(self, units: dict[str, int], subject: str, now: float) -> object:
        fits = all(self.used[name] + wanted <= self.limits[name] or wanted == 0 for name, wanted in units.items())
        lease = self.book.acquire(ME, units, now, subject=subject)
        assert isinstance(lease, Lease) == fits
        if isinstance(lease, Denied):
            assert lease.wanted > lease.available == max(0, self.limits[lease.capacity] - self.used[lease.capacity])
            return Lease(LeaseId("l-never"), 1, 3, ME, "", {}, 0.0)
        for name, wanted in units.items():
            self.used[name] += wanted
        return lease

    @rule(target=released, lease=consumes(held))
    def release(self, lease: Lease) -> Lease:
        if lease.lease_id == "l-never":
            self._unchanged(lease, ReleaseOutcome.UNKNOWN)
            return lease
        assert self.book.release(lease) is ReleaseOutcome.RELEASED
        for name, units in lease.units.items():
            self.used[name] -= units
        return lease

    @rule(lease=released)
    def release_again(self, lease: Lease) -> None:
        is_known = lease.lease_id != "l-never"
        self._unchanged(lease, ReleaseOutcome.DUPLICATE if is_known else ReleaseOutcome.UNKNOWN)

    @rule(lease=held, off=st.integers(-3, 3).filter(bool))
    def release_with_another_epoch(self, lease: Lease, off: int) -> None:
        is_known = lease.lease_id != "l-never"
        forged = replace(lease, epoch=lease.epoch + off)
        self._unchanged(forged, ReleaseOutcome.STALE if is_known else ReleaseOutcome.UNKNOWN)

    @rule(lease=held, generation=st.sampled_from([1, 2, 4]))
    def release_with_another_generation(self, lease: Lease, generation: int) -> None:
        self._unchanged(replace(lease, generation=generation), ReleaseOutcome.WRONG_GENERATION)

    @rule(number=st.integers(100_000, 200_000))
    def release_what_was_never_granted(self, number: int) -> None:
        self._unchanged(Lease(LeaseId(f"l-3-{number}"), 1, 3, ME, "", {"workers": 9}, 0.0), ReleaseOutcome.UNKNOWN)

    @rule(name=st.sampled_from(NAMES), limit=st.integers(0, 6))
    def set_limit(self, name: str, limit: int) -> None:
        self.book.set_limit(name, limit)
        self.limits[name] = limit
        self.allowed[name] = max(limit, self.used[name])

    @invariant()
    def counts_are_those_of_the_live_leases(self) -> None:
        if not hasattr(self, "book"):
            return
        self.book.validate()
        for name in NAMES:
            assert self.book.in_use.get(name, 0) == self.used[name]
            self.allowed[name] = max(self.limits[name], min(self.allowed[name], self.used[name]))
            assert self.used[name] <= self.allowed[name]
            assert self.book.available(name) == max(0, self.limits[name] - self.used[name])


TestLeasing = Leasing.TestCase
TestLeasing.settings = settings(max_examples=examples(80), stateful_step_count=40, deadline=None)


def test_a_parked_lease_lends_its_units_and_takes_them_back_even_above_the_limit() -> None:
    book = LeaseBook({"workers": 1})
    first = book.acquire(HolderId("h"), {"workers": 1}, 0.0)
    assert isinstance(first, Lease)
    assert book.park(first)
    assert not book.park(first)
    second = book.acquire(HolderId("h"), {"workers": 1}, 1.0)
    assert isinstance(second, Lease)
    assert book.unpark(first)
    assert not book.unpark(first)
    assert (book.in_use["workers"], book.available("workers")) == (2, 0)
    book.validate()


def test_a_lease_that_ends_parked_gives_nothing_back_twice() -> None:
    book = LeaseBook({"workers": 2})
    lease = book.acquire(HolderId("h"), {"workers": 2}, 0.0)
    assert isinstance(lease, Lease)
    book.park(lease)
    assert book.release(lease) is ReleaseOutcome.RELEASED
    assert book.release(lease) is ReleaseOutcome.DUPLICATE
    assert not book.park(lease)
    assert not book.unpark(lease)
    assert (book.in_use["workers"], book.parked) == (0, set())
    book.validate()
