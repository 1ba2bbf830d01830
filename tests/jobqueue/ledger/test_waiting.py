"""Who gets a free policy server: the longest waiter that it serves, and nobody is left who could have one."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.jobqueue import LeaseRef
from headgate.jobqueue import matching as waiting_module
from headgate.jobqueue.matching import Waiter, WaitingLines, best
from headgate.jobqueue.resource import Resource
from tests.jobqueue.ledger.queue import POOL, server

TASKS = ("radio", "mugs", "doors")
RULES = st.lists(st.sampled_from(TASKS), max_size=3, unique=True)


def waiter(ticket: int, task: str = "radio", since: float = 0.0, job_id: str | None = None, pool: str = POOL) -> Waiter:
    return Waiter(since, ticket, LeaseRef(job_id or f"job-{ticket}", "lease", 1), pool, task, 90.0)


def wanted(*tasks: str) -> set[tuple[str, str]]:
    return {(POOL, task) for task in tasks}


def resource(index: int, *tasks: str, refused: tuple[str, ...] = ()) -> Resource:
    return Resource(server(index, *tasks, refused=refused), index)


def lines_of(*waiters: Waiter) -> WaitingLines:
    lines = WaitingLines()
    for one in waiters:
        lines.join(one)
    return lines


@given(
    st.lists(st.tuples(st.sampled_from(TASKS), st.integers(0, 5)), max_size=8),
    st.lists(st.tuples(RULES, RULES), max_size=6),
)
def test_no_free_server_is_left_beside_a_waiter_that_it_serves(
    wishes: list[tuple[str, int]], rules: list[tuple[list[str], list[str]]]
) -> None:
    lines = lines_of(*(waiter(ticket, task, since) for ticket, (task, since) in enumerate(wishes)))
    free = [resource(index, *only, refused=tuple(never)) for index, (only, never) in enumerate(rules)]
    matches = list(lines.matches([POOL], free))
    given_away = [match.resource.resource_id for match in matches]
    assert len(set(given_away)) == len(given_away)
    assert all(match.resource.serves(POOL, match.waiter.task) for match in matches)
    for one in lines.line(POOL):
        assert not any(r.serves(POOL, one.task) for r in free if r.resource_id not in given_away)
    served = {match.waiter.ticket for match in matches}
    assert [one.ticket for one in lines.line(POOL)] == [
        ticket for _, ticket in sorted((since, t) for t, (_, since) in enumerate(wishes)) if ticket not in served
    ]
    lines.validate()


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.integers(1, 8))
def test_alike_waiters_are_served_in_the_order_in_which_they_first_asked(asked: list[int], servers: int) -> None:
    lines = lines_of(*(waiter(ticket, since=since) for ticket, since in enumerate(asked)))
    served = [match.waiter for match in lines.matches([POOL], [resource(i) for i in range(servers)])]
    everybody = sorted((since, ticket) for ticket, since in enumerate(asked))
    assert [(one.since, one.ticket) for one in served] == everybody[:servers]


def test_a_server_for_few_tasks_goes_before_one_for_all() -> None:
    anything, only_radio = resource(0), resource(1, "radio")
    assert best([anything, only_radio], POOL, "radio", wanted("mugs", "radio")) is only_radio
    lines = lines_of(waiter(1, "radio"), waiter(2, "mugs"))
    assert [(m.waiter.ticket, m.resource.index) for m in lines.matches([POOL], [anything, only_radio])] == [
        (1, 1),
        (2, 0),
    ]


def test_a_server_that_refuses_a_waiting_task_goes_before_one_that_takes_all() -> None:
    anything, no_mugs = resource(0), resource(1, refused=("mugs",))
    assert best([anything, no_mugs], POOL, "radio", wanted("mugs", "radio")) is no_mugs


def test_among_equal_servers_the_lowest_index_goes_first() -> None:
    assert best([resource(10), resource(2), resource(3)], POOL, "radio", wanted("radio")).index == 2


def test_no_server_that_serves_the_task_is_none() -> None:
    assert best([resource(0, "mugs"), resource(1, refused=("radio",))], POOL, "radio", wanted("radio")) is None
    assert best([], POOL, "radio", wanted("radio")) is None


def test_a_job_stands_in_line_once() -> None:
    lines = WaitingLines()
    assert lines.join(waiter(1, job_id="job")) is None
    assert lines.join(waiter(2, job_id="job")) == 1
    assert [one.ticket for one in lines.line(POOL)] == [2]
    assert len(lines) == 1
    assert not lines.leave(1)
    assert lines.leave(2)
    assert not lines.leave(2)
    lines.validate()


def test_lines_of_pools_do_not_mix() -> None:
    lines = lines_of(waiter(1))
    lines.join(waiter(2, pool="others"))
    assert [m.waiter.ticket for m in lines.matches([POOL], [resource(0), resource(1)])] == [1]
    assert [one.ticket for one in lines.line("others")] == [2]


def test_a_server_of_two_pools_goes_to_the_longest_waiter_of_both() -> None:
    lines = lines_of(waiter(1, since=2.0), waiter(2, since=1.0, pool="others"), waiter(3, since=3.0, pool="others"))
    shared = Resource(server(0), 0, also=(server(0, pool="others"),))
    assert [m.waiter.ticket for m in lines.matches([POOL, "others"], [shared])] == [2]
    assert [m.waiter.ticket for m in lines.matches(["others", POOL], [shared])] == [1]


def test_a_server_of_one_pool_goes_before_one_that_others_want_too() -> None:
    shared, own = Resource(server(0), 0, also=(server(0, pool="others"),)), resource(1)
    assert best([shared, own], POOL, "radio", {(POOL, "radio"), ("others", "radio")}) is own


def test_a_job_leaves_its_line_by_its_name() -> None:
    lines = lines_of(waiter(1, job_id="a"), waiter(2, job_id="b"))
    assert lines.leave_job("a") == 1
    assert lines.leave_job("a") is None
    assert [one.ticket for one in lines.line(POOL)] == [2]


def test_a_server_that_fits_nobody_is_compared_once_with_each_task(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(free: Iterable[Resource], pool: str, task: str, wanted: set[tuple[str, str]]) -> Resource | None:
        asked.append(task)
        return best(free, pool, task, wanted)

    monkeypatch.setattr(waiting_module, "best", counted)
    lines = lines_of(*(waiter(ticket, TASKS[ticket % 2]) for ticket in range(1_000)))
    assert list(lines.matches([POOL], [resource(0, "doors")])) == []
    assert asked == ["radio", "mugs"]
