"""The error pause: three service errors in a row, doubling up to a day, reset by an answer."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.sampling import Health
from headgate.sampling.sampler import ErrorPause
from tests.examples import examples


def _pause() -> ErrorPause:
    return ErrorPause(threshold=3, base_s=900.0, max_s=86_400.0)


def _fail(pause: ErrorPause, now: float, times: int = 3) -> float | None:
    return [pause.observe("service_error", started_at=now, now=now) for _ in range(times)][-1]


def test_the_third_service_error_in_a_row_pauses() -> None:
    pause = _pause()
    assert _fail(pause, 10.0, times=2) is None
    assert not pause.is_paused(10.0)
    assert _fail(pause, 11.0, times=1) == 900.0
    assert pause.is_paused(910.9)
    assert not pause.is_paused(911.0)


def test_a_quota_that_is_used_up_pauses_at_once_and_longer_each_time() -> None:
    pause, now, durations = _pause(), 0.0, []
    for _ in range(3):
        now += 1.0
        durations.append(pause.observe("exhausted", started_at=now, now=now))
        assert pause.observe("exhausted", started_at=now, now=now) is None, "what was asked at the same time"
        now += durations[-1] or 0.0
        pause.end()
    assert durations == [900.0, 1_800.0, 3_600.0]


def test_an_answer_in_between_starts_the_count_again() -> None:
    pause = _pause()
    _fail(pause, 1.0, times=2)
    pause.observe("answered", started_at=1.0, now=1.0)
    assert _fail(pause, 2.0, times=2) is None
    assert _fail(pause, 3.0, times=1) == 900.0


def test_what_says_nothing_about_the_service_neither_counts_nor_resets() -> None:
    pause = _pause()
    _fail(pause, 1.0, times=2)
    for _ in range(50):
        assert pause.observe("neutral", started_at=1.0, now=1.0) is None
    assert pause.consecutive == 2
    assert _fail(pause, 2.0, times=1) == 900.0


def test_pauses_double_up_to_a_day() -> None:
    pause, now, durations = _pause(), 0.0, []
    for _ in range(50):
        now += 1.0
        duration = _fail(pause, now)
        assert duration is not None
        durations.append(duration)
        now += duration
        pause.end()
    assert durations == [min(900.0 * 2**n, 86_400.0) for n in range(50)]


def test_after_a_pause_it_takes_three_errors_again() -> None:
    pause = _pause()
    _fail(pause, 1.0)
    pause.end()
    assert _fail(pause, 902.0, times=2) is None
    assert _fail(pause, 903.0, times=1) == 1_800.0


def test_an_answer_after_a_pause_makes_the_next_pause_short_again() -> None:
    pause = _pause()
    _fail(pause, 1.0)
    pause.end()
    pause.observe("answered", started_at=902.0, now=903.0)
    assert _fail(pause, 904.0) == 900.0


def test_eight_that_fail_together_are_one_pause() -> None:
    pause = _pause()
    durations = [pause.observe("service_error", started_at=1.0, now=5.0 + n) for n in range(8)]
    assert [d for d in durations if d is not None] == [900.0]
    assert pause.level == 1


def test_outcomes_of_episodes_from_before_the_pause_say_nothing_after_it() -> None:
    pause = _pause()
    _fail(pause, 10.0)
    assert pause.observe("answered", started_at=9.0, now=20.0) is None
    assert pause.is_paused(20.0)
    pause.end()
    for _ in range(10):
        assert pause.observe("service_error", started_at=10.0, now=1_000.0) is None
    assert pause.consecutive == 0


def test_an_answer_that_was_asked_for_during_the_pause_ends_it() -> None:
    pause = _pause()
    _fail(pause, 10.0)
    pause.observe("answered", started_at=11.0, now=12.0)
    assert not pause.is_paused(12.0)


def test_a_restored_pause_goes_on_where_it_was() -> None:
    pause = _pause()
    pause.restore(3, 5_000.0, now=4_000.0)
    assert pause.is_paused(4_999.0)
    pause.end()
    assert _fail(pause, 5_001.0) == 900.0 * 2**3


def test_a_pause_that_ended_meanwhile_leaves_its_level_only() -> None:
    pause = _pause()
    pause.restore(2, 3_000.0, now=4_000.0)
    assert not pause.is_paused(4_000.0)
    assert _fail(pause, 4_001.0) == 3_600.0


class Pausing(RuleBasedStateMachine):
    """Episodes begin while the model is not paused and end whenever; compared with a rule in one sentence."""

    def __init__(self) -> None:
        super().__init__()
        self.pause = _pause()
        self.now = 0.0
        self.running: list[float] = []
        self.row = 0
        self.level = 0
        self.paused_at = -1.0
        self.until = 0.0

    @rule(seconds=st.floats(0.001, 5_000))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        if self.pause.paused_until is not None and self.now >= self.pause.paused_until:
            self.pause.end()
            self.row = 0

    @precondition(lambda self: not self.pause.is_paused(self.now))
    @rule()
    def begin(self) -> None:
        self.now += 0.001
        self.running.append(self.now)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), health=st.sampled_from(["answered", "service_error", "service_error", "neutral"]))
    def end(self, data: st.DataObject, health: Health) -> None:
        started_at = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        duration = self.pause.observe(health, started_at=started_at, now=self.now)
        expected = None
        if started_at > self.paused_at and health == "answered":
            self.row = self.level = 0
        elif started_at > self.paused_at and health == "service_error":
            self.row += 1
            if self.row == 3:
                expected = min(900.0 * 2**self.level, 86_400.0)
                self.level, self.paused_at, self.until = self.level + 1, self.now, self.now + expected
        assert duration == expected

    @invariant()
    def paused_as_long_as_it_should(self) -> None:
        assert self.pause.is_paused(self.now) == (self.now < self.until)


TestPausing = Pausing.TestCase
TestPausing.settings = settings(max_examples=examples(40), stateful_step_count=40, deadline=None)


@given(st.lists(st.sampled_from(["answered", "neutral"]), max_size=50))
def test_without_service_errors_there_is_no_pause(healths: list[Health]) -> None:
    pause = _pause()
    assert [pause.observe(h, started_at=float(n), now=float(n)) for n, h in enumerate(healths)] == [None] * len(healths)


def test_a_pause_of_an_earlier_life_began_when_it_did() -> None:
    pause, again = _pause(), _pause()
    _fail(pause, 100.0)
    pause.end()
    _fail(pause, 2_000.0)
    assert pause.began_at == 2_000.0
    assert pause.paused_until is not None
    again.restore(pause.level, pause.paused_until, now=2_500.0)
    assert again.began_at == 2_000.0
    again.forget()
    assert again.began_at is None


def test_pauses_in_a_row_began_with_the_first_one_also_in_an_earlier_life() -> None:
    pause = _pause()
    _fail(pause, 1_000.0)
    pause.end()
    _fail(pause, 1_950.0)
    assert (pause.level, pause.since) == (2, 1_000.0)
    again = _pause()
    again.restore(pause.level, pause.paused_until or 0.0, now=2_500.0)
    assert again.since is not None
    assert 1_000.0 <= again.since <= 1_050.0, "the time of the tries between them is not known"
    again.observe("answered", started_at=4_000.0, now=4_001.0)
    assert again.since is None
