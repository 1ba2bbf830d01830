"""Requests in a pool: who goes where, who waits, and what becomes of those whose worker fails."""

from __future__ import annotations

import gc

import pytest

from headgate.core import ReleaseOutcome, events
from headgate.elastic.outbox import Cut, Fail
from headgate.elastic.queue import Accepted, ElasticRequest, Refused
from headgate.elastic.settings import ElasticConfig
from tests.elastic.hands import Hands, Wanted

TWO = {"a": 2, "b": 2}


def hands(workers: dict[str, int] = TWO, **settings: object) -> Hands:
    return Hands(ElasticConfig(**settings), workers, Wanted(len(workers)), awake=tuple(workers))


def test_requests_go_to_the_worker_with_fewest_tokens() -> None:
    there = hands()
    there.submit("long", tokens=100)
    there.submit("short", tokens=10)
    there.submit("next", tokens=10)
    assert [(send.request_id, send.worker_id) for send in there.sent] == [("long", "a"), ("short", "b"), ("next", "b")]


def test_a_request_goes_where_its_beginning_was_computed() -> None:
    there = hands({"a": 4, "b": 4})
    there.submit("first", prefixes=(1, 2))
    there.submit("other", prefixes=(9,))
    there.submit("again", prefixes=(1, 2, 3))
    assert [send.worker_id for send in there.sent] == ["a", "b", "a"]


def test_a_beginning_does_not_outweigh_a_worker_that_is_much_less_loaded() -> None:
    there = hands({"a": 8, "b": 8})
    for number in range(6):
        there.submit(f"r{number}", prefixes=(7,))
    assert {send.worker_id for send in there.sent} == {"a", "b"}


def test_a_request_larger_than_the_room_for_tokens_waits_unless_the_worker_is_empty() -> None:
    from headgate.elastic.worker import EngineLoad

    there = hands({"a": 8}, min_workers=1)
    there.pool.read("a", there.pool.workers["a"].epoch, EngineLoad(tokens=0, token_slots=100), there.now)
    there.submit("huge", tokens=500)
    there.submit("small", tokens=10)
    assert [send.request_id for send in there.sent] == ["huge"]
    there.finish("huge")
    assert [send.request_id for send in there.sent] == ["huge", "small"]


def test_who_waits_is_served_in_order_and_groups_take_turns() -> None:
    there = hands({"a": 1})
    there.submit("now")
    for name, group in [("x1", "x"), ("x2", "x"), ("x3", "x"), ("y1", "y")]:
        there.submit(name, group=group)
    for name in ["now", "x1", "y1", "x2", "x3"]:
        there.finish(name)
    assert there.answered == ["now", "x1", "y1", "x2", "x3"]


def test_the_same_request_again_is_the_same_request() -> None:
    there = hands()
    assert there.submit("r") == Accepted("r")
    assert there.submit("r") == Accepted("r", again=True)
    assert len(there.sent) == 1


def test_a_full_line_refuses_with_a_time_to_come_again() -> None:
    there = hands({"a": 1}, max_queue=2)
    assert [type(there.submit(name)) for name in ("runs", "waits", "waits too")] == [Accepted] * 3
    refused = there.submit("one too many")
    assert isinstance(refused, Refused)
    assert refused.reason == "full"
    assert refused.says == "max_queue allows 2 waiting requests (got one more)"
    assert refused.retry_after_s is not None
    assert refused.retry_after_s >= 1
    there.finish("runs")
    assert isinstance(there.submit("comes again"), Accepted)


def test_without_a_line_only_who_finds_room_at_once_is_taken() -> None:
    there = hands({"a": 1}, max_queue=0)
    assert isinstance(there.submit("runs"), Accepted)
    assert isinstance(there.submit("would wait"), Refused)
    there.finish("runs")
    assert isinstance(there.submit("finds room"), Accepted)


def test_a_request_that_waits_too_long_is_told_so() -> None:
    there = hands({"a": 1}, queue_timeout=5)
    there.submit("runs")
    there.submit("waits")
    there.run(4.9)
    assert there.failed == {}
    there.run(0.2)
    assert there.failed == {"waits": "pool_full"}


def test_a_closed_pool_takes_nothing_and_ends_what_it_has() -> None:
    there = hands()
    there.submit("r")
    there.pool.close(there.now)
    assert isinstance(there.submit("late"), Refused)
    there.finish("r")
    assert there.answered == ["r"]


def test_a_request_that_broke_goes_to_another_worker_and_keeps_its_place() -> None:
    there = hands({"a": 1, "b": 1})
    for name in ("first", "second", "third"):
        there.submit(name)
    there.engines["a"].is_dead = True
    there.break_("first")
    assert there.pool.requests["first"].state == "waiting"
    there.finish("second")
    assert there.sent[-1].request_id == "first"
    assert there.sent[-1].worker_id == "b"


def test_nothing_is_sent_to_a_worker_at_which_a_request_broke_before_it_was_read() -> None:
    there = hands({"a": 2})
    there.submit("r")
    epoch = there.sent[-1].epoch
    there.pool.broke("r", epoch, "502", there.now)
    commands = there.pool.decide(there.now)
    assert [type(command).__name__ for command in commands] == ["Read"]
    there._carry_out(commands[0])
    there.settle()
    assert len(there.sent) == 2


def test_a_late_answer_of_a_former_worker_changes_nothing() -> None:
    there = hands({"a": 1, "b": 1})
    there.submit("r")
    first = there.sent[-1]
    there.engines["a"].requests.clear()
    there.pool.broke("r", first.epoch, "reset", there.now)
    there.settle()
    assert there.pool.ended("r", first.epoch, there.now) is ReleaseOutcome.STALE
    assert there.pool.begun("r", first.epoch) is ReleaseOutcome.STALE
    second = there.sent[-1]
    there.finish("r")
    assert there.pool.ended("r", second.epoch, there.now) is ReleaseOutcome.UNKNOWN
    assert there.answered == ["r"]


def test_a_request_in_whose_hands_worker_after_worker_fails_is_given_to_no_further_one() -> None:
    there = hands({"a": 1, "b": 1, "c": 1}, max_losses=2)
    there.submit("poison")
    there.break_("poison")
    there.break_("poison")
    assert there.failed == {"poison": "request_lost"}
    assert len(there.sent) == 2


def test_an_answer_that_has_begun_is_never_started_again() -> None:
    there = hands()
    there.submit("stream")
    assert there.pool.begun("stream", there.sent[-1].epoch) is ReleaseOutcome.RELEASED
    there.break_("stream")
    assert there.failed == {"stream": "request_lost"}
    assert len(there.sent) == 1


def test_a_request_that_was_handed_over_and_finds_no_room_has_another_worker_woken_at_once() -> None:
    policy = Wanted(1)
    config = ElasticConfig(monitoring_interval=60, urgent_interval=0.25, min_stable_period=0)
    there = Hands(config, {"w0": 1, "w1": 1}, policy, awake=("w0",))
    there.submit("a")
    there.run(61)
    policy.workers = 2
    there.engines["w0"].is_dead = True
    there.break_("a")
    assert there.state("w1") == "starting"


def test_a_withdrawn_request_is_cut_and_leaves_its_slot() -> None:
    there = hands({"a": 1})
    there.submit("gone")
    there.submit("next")
    assert there.pool.withdraw("gone", there.now)
    there.settle()
    assert any(isinstance(command, Cut) and command.request_id == "gone" for command in there.commands)
    assert there.sent[-1].request_id == "next"
    assert not there.pool.withdraw("gone", there.now)


def test_clients_that_lose_patience_behind_a_slow_head_leave_nothing_behind() -> None:
    there = hands({"a": 1}, queue_timeout=None)
    there.submit("runs")
    there.submit("head", group="slow")
    for number in range(4_000):
        there.pool.submit(ElasticRequest(f"r{number}", group=f"impatient {number % 7}"), there.now)
        there.pool.withdraw(f"r{number}", there.now)
    there.settle()
    kept = [each for each in gc.get_objects() if isinstance(each, ElasticRequest) and "impatient" in each.group]
    assert len(kept) < 1_500
    del kept
    there.submit("last", group="impatient 0")
    there.finish("runs")
    assert there.sent[-1].request_id == "head"
    there.finish("head")
    assert there.sent[-1].request_id == "last"


def test_a_withdrawn_request_in_line_is_never_sent() -> None:
    there = hands({"a": 1})
    there.submit("runs")
    there.submit("gone")
    there.pool.withdraw("gone", there.now)
    there.finish("runs")
    assert [send.request_id for send in there.sent] == ["runs"]


@pytest.mark.parametrize("failure", ["dies", "answers nothing but readings"])
def test_a_worker_that_fails_gives_everything_to_others(failure: str) -> None:
    there = hands({"a": 6, "b": 6})
    for number in range(10):
        there.submit(f"r{number}")
    lost = list(there.engines["a"].requests)
    assert len(lost) == 5
    there.engines["a"].is_dead = failure == "dies"
    if failure == "dies":
        there.run(30)
    else:
        for name in list(lost):
            there.engines["a"].requests.pop(name)
            there.pool.broke(name, there.pool.requests[name].epoch, "502", there.now)
    assert there.state("a") == "failed"
    there.settle()
    for name in [f"r{number}" for number in range(10)]:
        there.finish(name)
    assert sorted(there.answered) == sorted(f"r{number}" for number in range(10))
    assert not [command for command in there.commands if isinstance(command, Fail)]


def test_hand_overs_and_losses_are_told() -> None:
    there = hands({"a": 1, "b": 1}, max_losses=2)
    there.submit("r")
    there.break_("r")
    there.break_("r")
    told = [type(event) for event in there.pool.take_events()]
    assert told.count(events.RequestHandedOver) == 1
    assert told.count(events.RequestLost) == 1
