"""Workers of a pool: every edge between their states, and what an operator can do."""

from __future__ import annotations

import pytest

from headgate.core import events
from headgate.elastic.errors import InvalidElasticError, UnknownWorkerError
from headgate.elastic.outbox import Abort, LetGo, Sleep, Wake
from headgate.elastic.settings import ElasticConfig
from headgate.elastic.worker import DrainStage, EngineLoad, Pin
from tests.elastic.hands import Hands, Wanted


def hands(awake: int, asleep: int = 0, *, wanted: int | None = None, slots: int = 4, **more: object) -> Hands:
    names = [f"w{number}" for number in range(awake + asleep)]
    service_s, start_s = more.pop("service_s", None), more.pop("start_s", 1.0)
    policy = Wanted(awake if wanted is None else wanted)
    there = Hands(
        ElasticConfig(**{"min_stable_period": 0, **more}),
        dict.fromkeys(names, slots),
        policy,
        awake=tuple(names[:awake]),
        service_s=service_s,  # type: ignore[arg-type]
        start_s=start_s,  # type: ignore[arg-type]
    )
    there.want = policy  # type: ignore[attr-defined]
    return there


def states(there: Hands) -> list[str]:
    return [there.state(worker) for worker in there.pool.workers]


def wants(there: Hands, workers: int) -> None:
    there.want.workers = workers  # type: ignore[attr-defined]


def test_a_worker_is_woken_when_more_are_wanted() -> None:
    there = hands(1, 1, wanted=2)
    assert states(there) == ["active", "starting"]
    there.run(1.1)
    assert states(there) == ["active", "active"]


def test_an_idle_worker_is_put_to_sleep_after_two_idle_readings_a_while_apart() -> None:
    there = hands(2, confirm_interval=1.0)
    wants(there, 1)
    there.run(5.0)
    assert there.pool.workers["w0"].stage is DrainStage.CONFIRMING
    there.run(0.9)
    assert there.engines["w0"].sleeps == 0
    there.run(0.2)
    assert there.engines["w0"].sleeps == 1
    assert states(there) == ["inactive", "active"]


def test_a_draining_worker_gets_nothing_new_and_ends_what_it_has() -> None:
    there = hands(2, drain_timeout=100)
    for number in range(4):
        there.submit(f"r{number}")
    wants(there, 1)
    there.run(6)
    assert states(there) == ["draining", "active"]
    has = set(there.engines["w0"].requests)
    there.submit("new")
    assert set(there.engines["w0"].requests) == has
    for name in has:
        there.finish(name)
    there.run(2)
    assert states(there) == ["inactive", "active"]
    assert set(there.answered) == has


def test_load_that_returns_turns_a_draining_worker_back_without_a_start() -> None:
    there = hands(2, drain_timeout=100)
    for number in range(4):
        there.submit(f"r{number}")
    wants(there, 1)
    there.run(6)
    wants(there, 2)
    there.run(5)
    assert states(there) == ["active", "active"]
    assert not [command for command in there.commands if isinstance(command, Wake | Sleep)]


def test_what_is_left_after_the_timeout_moves_to_another_worker_exactly_once() -> None:
    there = hands(2, drain_timeout=10)
    for number in range(4):
        there.submit(f"r{number}")
    wants(there, 1)
    there.run(5.5)
    left = set(there.engines["w0"].requests)
    assert left
    there.run(14)
    assert states(there) == ["inactive", "active"]
    assert left <= set(there.engines["w1"].requests)
    sent = [send.request_id for send in there.sent]
    assert all(sent.count(name) == 2 for name in left)
    for name in list(there.engines["w1"].requests):
        there.finish(name)
    assert sorted(there.answered) == ["r0", "r1", "r2", "r3"]


def test_an_answer_that_is_arriving_may_end_while_its_worker_drains() -> None:
    there = hands(2, drain_timeout=10, stream_drain_timeout=100)
    there.submit("stream")
    there.pool.begun("stream", there.sent[-1].epoch)
    there.engines["w1"].foreign = 0
    there.pool.pin("w0", Pin.ASLEEP, there.now)
    there.run(60)
    assert states(there)[0] == "draining"
    assert not [command for command in there.commands if isinstance(command, Abort)]
    there.finish("stream")
    there.run(3)
    assert states(there)[0] == "inactive"
    assert there.answered == ["stream"]


def test_an_answer_that_never_ends_is_told_lost_before_its_worker_sleeps() -> None:
    there = hands(2, drain_timeout=10, stream_drain_timeout=50)
    there.submit("endless")
    there.pool.begun("endless", there.sent[-1].epoch)
    there.pool.pin("w0", Pin.ASLEEP, there.now)
    there.run(70)
    assert there.failed == {"endless": "request_lost"}
    assert states(there)[0] == "inactive"


def test_a_worker_is_needed_again_while_its_last_answers_are_being_ended() -> None:
    there = hands(2, drain_timeout=4, stream_drain_timeout=6, engine_timeout=2, engine_attempts=1)
    there.submit("a")
    there.pool.begun("a", there.pool.requests["a"].epoch)
    there.submit("b")
    there.pool.begun("b", there.pool.requests["b"].epoch)
    for engine in there.engines.values():
        engine.ignores_aborts = True
    wants(there, 1)
    there.run(14.9)
    assert "aborting" not in {str(handling.state) for handling in there.pool.requests.values()}
    wants(there, 2)
    there.run(0.2)
    assert "aborting" in {str(handling.state) for handling in there.pool.requests.values()}
    assert states(there) == ["active", "active"]


def test_an_engine_that_lets_go_of_nothing_fails_and_its_requests_go_on_elsewhere() -> None:
    there = hands(2, drain_timeout=10, engine_timeout=5, engine_attempts=2)
    there.submit("r")
    there.engines["w0"].ignores_aborts = True
    there.pool.pin("w0", Pin.ASLEEP, there.now)
    there.run(21)
    assert states(there)[0] == "failed"
    assert "r" in there.engines["w1"].requests
    assert not there.engines["w0"].sleeps


def test_an_engine_that_works_for_others_is_not_put_to_sleep() -> None:
    there = hands(2, drain_timeout=10)
    for engine in there.engines.values():
        engine.foreign = 1
    wants(there, 1)
    there.run(17)
    assert states(there)[0] == "active"
    there.run(17)
    assert not any(engine.sleeps for engine in there.engines.values())
    assert any(isinstance(event, events.CountsDiffer) for event in there.pool.take_events())


def test_a_worker_that_does_not_wake_fails_and_another_is_woken_instead() -> None:
    there = hands(1, 2, wanted=2)
    there.engines["w1"].fails_to_wake = 1
    there.run(12)
    assert states(there) == ["active", "failed", "active"]
    there.run(12)
    assert there.state("w1") == "inactive"  # it answers again, asleep


def test_a_worker_that_woke_only_in_part_sleeps_before_it_takes_requests_however_many_wait() -> None:
    there = hands(1, 1, slots=1, urgent_interval=0.1, failed_retry=3, queue_timeout=None)
    engine = there.engines["w1"]
    engine.fails_to_wake = 1
    wants(there, 2)
    there.run(6.5)
    assert there.state("w1") == "failed"
    engine.is_asleep, engine.is_half_asleep = False, True
    for number in range(60):
        there.submit(f"r{number}")
        there.run(0.2)
        assert not (there.state("w1") == "active" and engine.is_half_asleep)
    assert engine.sleeps == 1
    assert there.state("w1") == "active"


def test_a_failed_worker_is_tried_later_each_time() -> None:
    there = hands(2, failed_retry=10)
    there.engines["w0"].is_dead = True
    there.run(15)
    assert states(there) == ["failed", "active"]
    failures = [event for event in there.pool.take_events() if isinstance(event, events.WorkerFailed)]
    there.run(200)
    failures += [event for event in there.pool.take_events() if isinstance(event, events.WorkerFailed)]
    assert [event.retry_s for event in failures][:4] == [10, 20, 40, 80]


def test_a_worker_that_starts_and_breaks_before_it_has_answered_anything_is_tried_later_each_time() -> None:
    there = hands(1, slots=8, failed_retry=10, queue_timeout=None)
    waits = []
    for life in range(4):
        names = [f"{life}-{number}" for number in range(8)]
        for name in names:
            there.submit(name)
        while there.state("w0") != "active":
            there.run(1)
        if life == 3:
            there.finish(next(iter(there.engines["w0"].requests)))
        for name in list(there.engines["w0"].requests):
            there.break_(name)
        waits += [event.retry_s for event in there.pool.take_events() if isinstance(event, events.WorkerFailed)]
    assert waits == [10, 20, 40, 10]


@pytest.mark.parametrize("pin", [Pin.AWAKE, None])
def test_a_failed_worker_is_tried_at_once_when_an_operator_takes_it_in_hand(pin: Pin | None) -> None:
    there = hands(2, failed_retry=1000)
    there.engines["w0"].is_dead = True
    there.run(30)
    assert states(there) == ["failed", "active"]
    there.engines["w0"].is_dead = False
    there.pool.pin("w0", pin, there.now)
    there.settle()
    there.run(10)
    assert states(there) == ["active", "active"]


def test_a_failed_worker_that_answers_awake_takes_requests_again() -> None:
    there = hands(2, failed_retry=10)
    there.engines["w0"].is_dead = True
    there.run(15)
    there.engines["w0"].is_dead = False
    there.run(16)
    assert states(there) == ["active", "active"]


def test_a_worker_whose_answers_arrive_does_not_fail_by_lost_readings() -> None:
    there = hands(1)
    there.engines["w0"].is_dead = True
    for _ in range(40):
        there.run(0.5)
        there.pool.alive("w0")
    assert states(there) == ["active"]


def test_a_worker_that_starts_for_ever_fails() -> None:
    there = hands(1, 1, wanted=2, start_timeout=20, start_s=1_000.0)
    there.run(26)
    assert states(there) == ["active", "failed"]
    assert any(isinstance(command, LetGo) for command in there.commands)


def test_a_worker_waits_for_its_lease_as_long_as_it_takes_and_is_forgone_when_not_wanted() -> None:
    there = hands(1, 1, start_timeout=20)
    there.leases_are_free = False
    wants(there, 2)
    there.run(500)
    assert states(there) == ["active", "starting"]
    wants(there, 1)
    there.run(6)
    assert states(there) == ["active", "inactive"]
    assert any(isinstance(command, LetGo) for command in there.commands)


def test_a_worker_that_waits_for_its_lease_leaves_the_line_when_an_operator_wants_it_asleep() -> None:
    there = hands(1, 2)
    there.leases_are_free = False
    wants(there, 2)
    there.run(6)
    assert states(there) == ["active", "starting", "inactive"]
    there.pool.pin("w1", Pin.ASLEEP, there.now)
    there.settle()
    assert LetGo("w1", there.pool.workers["w1"].epoch) in there.commands
    assert states(there) == ["active", "inactive", "starting"], "another one starts in its stead"


def test_a_lost_lease_moves_what_has_not_begun_at_once() -> None:
    there = hands(2, drain_timeout=1_000)
    there.submit("r0")
    there.submit("r1")
    there.pool.lease_lost("w0", there.now, within_s=0.5)
    there.settle()
    there.run(0.1)
    assert set(there.engines["w1"].requests) == {"r0", "r1"}
    there.run(0.4)
    assert there.engines["w0"].sleeps == 1


def test_a_lease_lost_while_starting_puts_the_worker_to_sleep_as_soon_as_it_has_started() -> None:
    there = hands(1, 1, wanted=2)
    there.run(5.5)
    there.pool.lease_lost("w1", there.now, within_s=1)
    there.run(1)
    assert there.engines["w1"].wakes == 1
    assert there.engines["w1"].sleeps == 1


def test_a_worker_that_was_woken_is_held_for_three_times_its_start() -> None:
    there = hands(1, 1, wanted=2, min_stable_period=1, start_s=10.0)
    there.run(10.5)
    assert states(there) == ["active", "active"]
    wants(there, 1)
    there.pool.pin("w0", Pin.AWAKE, there.now)
    there.run(28)
    assert states(there) == ["active", "active"]
    there.run(10)
    assert states(there) == ["active", "inactive"]


def test_capacity_is_learnt_from_the_engine() -> None:
    there = hands(1, slots=8)
    there.pool.read("w0", there.pool.workers["w0"].epoch, EngineLoad(slots=2), there.now)
    for number in range(4):
        there.submit(f"r{number}")
    assert len(there.engines["w0"].requests) == 2


def test_tokens_count_as_load_where_the_engine_tells_them() -> None:
    there = hands(1)
    there.submit("r")
    there.pool.read("w0", there.pool.workers["w0"].epoch, EngineLoad(running=1, tokens=90, token_slots=100), there.now)
    assert there.pool.demand(there.now).worth == pytest.approx(0.9)


def test_what_an_engine_does_for_others_is_load_once_two_readings_have_counted_it() -> None:
    there = hands(1)
    there.engines["w0"].foreign = 3
    there.run(5)
    assert there.pool.demand(there.now).worth == pytest.approx(0.0)
    there.run(5)
    assert there.pool.demand(there.now).worth == pytest.approx(0.75)
    there.submit("fits")
    there.submit("waits")
    assert there.pool.waiting == 1


def test_a_worker_found_asleep_gives_its_requests_to_others() -> None:
    there = hands(2)
    there.submit("r")
    there.engines["w0"].is_asleep = True
    there.engines["w0"].requests.clear()
    there.run(6)
    assert there.state("w0") in {"failed", "inactive"}
    assert "r" in there.engines["w1"].requests


def test_a_sleeping_worker_found_awake_is_put_to_sleep_again() -> None:
    there = hands(1, 1)
    there.engines["w1"].is_asleep = False
    there.run(40)
    assert there.engines["w1"].sleeps == 1
    assert there.state("w1") == "inactive"


def test_all_workers_are_awake_for_a_validation_pass_and_follow_the_load_after_it() -> None:
    there = hands(1, 3, wanted=1)
    there.pool.wake_all(there.now, for_s=60)
    there.settle()
    there.run(30)
    assert states(there) == ["active"] * 4
    there.pool.resume(there.now)
    there.run(20)
    assert states(there).count("active") == 1


def test_waking_all_ends_by_itself() -> None:
    there = hands(1, 3, wanted=1)
    there.pool.wake_all(there.now, for_s=30)
    there.run(60)
    assert states(there).count("active") == 1


def test_an_operator_can_set_the_number_and_give_it_back() -> None:
    there = hands(1, 3, wanted=1)
    there.pool.scale(3, there.now)
    there.run(10)
    assert states(there).count("active") == 3
    there.pool.scale(None, there.now)
    there.run(10)
    assert states(there).count("active") == 1
    with pytest.raises(InvalidElasticError, match="between min_workers 1 and max_workers 8"):
        there.pool.scale(9, there.now)


def test_a_pinned_worker_stays_whatever_the_load() -> None:
    there = hands(1, 1, wanted=1)
    there.pool.pin("w1", Pin.AWAKE, there.now)
    there.run(10)
    assert there.state("w1") == "active"
    there.pool.pin("w1", Pin.ASLEEP, there.now)
    wants(there, 2)
    there.run(10)
    assert there.state("w1") == "inactive"
    there.pool.pin("w1", None, there.now)
    there.run(10)
    assert there.state("w1") == "active"
    with pytest.raises(UnknownWorkerError, match="no worker 'w9'"):
        there.pool.pin("w9", None, there.now)


def test_a_pool_that_is_not_elastic_leaves_its_workers_alone() -> None:
    there = hands(2, 1, wanted=3, enable_elastic=False)
    there.run(100)
    assert states(there) == ["active", "active", "inactive"]


def test_a_pool_that_is_not_elastic_has_a_worker_back_that_failed_for_a_while() -> None:
    there = hands(3, enable_elastic=False, failed_retry=5)
    there.engines["w1"].is_dead = True
    there.run(20)
    assert there.state("w1") == "failed"
    there.engines["w1"].is_dead = False
    there.run(30)
    assert states(there) == ["active", "active", "active"]


def test_a_pool_that_is_not_elastic_keeps_what_an_operator_leaves_it() -> None:
    there = hands(3, 1, enable_elastic=False)
    there.pool.pin("w0", Pin.ASLEEP, there.now)
    there.run(20)
    assert states(there) == ["inactive", "active", "active", "inactive"]
    there.pool.scale(1, there.now)
    there.pool.resume(there.now)
    there.run(20)
    assert states(there).count("active") == 1


def test_the_number_stays_within_its_bounds_whatever_the_policy_says() -> None:
    there = hands(1, 7, wanted=100, max_workers=3, min_workers=1)
    there.run(20)
    assert states(there).count("active") == 3
    wants(there, 0)
    there.run(60)
    assert states(there).count("active") == 1


def test_it_is_said_where_a_bound_and_not_the_policy_has_the_last_word() -> None:
    there = hands(1, 3, wanted=7, max_workers=3)
    assert there.pool.desired.workers == 3
    assert there.pool.desired.because.endswith("7 wanted, only 3 can be awake")
    wants(there, 0)
    there.run(5)
    assert there.pool.desired.because.endswith("at least 1 stay awake")


def test_a_pool_with_fewer_workers_than_its_minimum_is_refused() -> None:
    with pytest.raises(InvalidElasticError, match=r"min_workers must be <= the workers of the pool \(got 3 > 1\)"):
        hands(1, min_workers=3)


def test_a_pool_that_may_sleep_whole_wakes_one_worker_for_a_request_and_sleeps_again() -> None:
    there = hands(0, 2, wanted=0, min_workers=0, service_s=3.0)
    assert states(there) == ["inactive", "inactive"]
    there.submit("r1")
    there.run(0.3)
    assert states(there) == ["starting", "inactive"]
    assert "one is awake while there are requests" in there.pool.desired.because
    there.run(4.5)
    assert there.answered == ["r1"]
    there.run(10.0)
    assert states(there) == ["inactive", "inactive"]
