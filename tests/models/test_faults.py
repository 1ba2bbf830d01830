from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import errors
from headgate.models import Failure, FaultPlan, RateLimit, Slow
from headgate.models.faults import Answer, Break, FaultSchedule, Garbage, Refuse, log_normal


def schedule(text: str) -> FaultSchedule:
    return FaultSchedule(FaultPlan.parse(text))


def test_a_plan_reads_the_same_from_yaml_json_short_form_and_file(tmp_path: Path) -> None:
    expected = FaultPlan(
        seed=7,
        rules=(Failure(model="baseline-*", status=500, probability=0.25, until_s=60), Slow(mean_s=0.3)),
    )
    as_yaml = """
seed: 7
rules:
  - {kind: error, model: baseline-*, status: 500, probability: 0.25, until_s: 60}
  - {kind: slow, mean_s: 0.3}
"""
    (tmp_path / "plan.yaml").write_text(as_yaml)
    (tmp_path / "plan.json").write_text(expected.model_dump_json())
    short = "seed=7;error:model=baseline-*,status=500,probability=0.25,until_s=60;slow:mean_s=0.3"
    sources = [as_yaml, short, str(tmp_path / "plan.yaml")]
    assert [FaultPlan.parse(source) for source in sources] == [expected] * 3
    assert FaultPlan.parse('{"seed": 7, "rules": [{"kind": "hang"}]}').rules[0].kind == "hang"
    assert FaultPlan.parse("hang").rules == FaultPlan.parse("[{kind: hang}]").rules
    assert FaultPlan.parse("") == FaultPlan()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("eror:status=500", "eror"),
        ("error:status=200", "greater than or equal to 400 (got '200')"),
        ("error:stat=500", "stat"),
        ("error:probability=1.5", "1.5"),
        ("rate_limit", "needs concurrency or per_second"),
        ("slow:mean_s=nan", "nan"),
        ("slow", "mean_s"),
        ("rules: [", "cannot be read: line 1"),
        ("missing.yaml", "missing.yaml"),
        ("42", "42"),
    ],
)
def test_a_plan_that_cannot_be_used_is_refused_with_its_value(text: str, said: str) -> None:
    with pytest.raises(errors.InvalidInputError) as caught:
        FaultPlan.parse(text)
    assert said in str(caught.value)


def test_a_refused_plan_does_not_show_its_key() -> None:
    with pytest.raises(errors.InvalidInputError) as caught:
        FaultPlan.parse('[{"kind": "key", "key": ["hidden-key"]}]')
    assert "hidden-key" not in str(caught.value)


def test_a_rule_holds_for_its_models_in_its_window_only() -> None:
    faults = schedule("error:model=a*,from_s=10,until_s=20")
    times = {now: faults.begin("a1", "", now) for now in (100.0, 109.9, 110.0, 119.9, 120.0)}
    assert [isinstance(verdict, Refuse) for verdict in times.values()] == [False, False, True, True, False]
    assert faults.begin("b1", "", 115.0) == Answer()
    assert faults.begin("a2", "", 115.0) == Answer(), "its own window begins with its own first request"


def test_the_same_seed_gives_the_same_faults_and_another_seed_others() -> None:
    def drawn(seed: int) -> list[bool]:
        faults = schedule(f"seed={seed};error:probability=0.3")
        return [isinstance(faults.begin("m", "", 101.0), Refuse) for _ in range(400)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    assert 80 <= sum(drawn(1)) <= 160


def test_requests_beyond_the_concurrency_are_refused_until_one_ends() -> None:
    faults = schedule("rate_limit:concurrency=2,retry_after_s=4")
    assert [type(faults.begin("m", "", 100.0)) for _ in range(3)] == [Answer, Answer, Refuse]
    assert faults.begin("other", "", 100.0) == Answer()
    assert faults.begin("m", "", 100.0) == Refuse(429, 4.0)
    faults.end("m")
    assert faults.begin("m", "", 100.0) == Answer()
    faults.validate()


def test_a_rate_per_second_allows_a_second_s_worth_at_once_and_then_the_rate() -> None:
    faults = schedule("rate_limit:per_second=5")
    outcomes: Counter[type] = Counter(type(faults.begin("m", "", 100.0)) for _ in range(8))
    assert outcomes == {Answer: 5, Refuse: 3}
    assert [type(faults.begin("m", "", 100.4)) for _ in range(3)] == [Answer, Answer, Refuse]


def test_latencies_add_up_and_the_first_fault_decides() -> None:
    verdict = schedule("slow:mean_s=1,cv=0;slow:mean_s=2,cv=0;garbage:form=empty;error").begin("m", "", 100.0)
    assert verdict == Break(Garbage(form="empty"), 3.0)


def test_only_the_right_key_passes() -> None:
    faults = schedule("key:key=right")
    assert faults.begin("m", "wrong", 100.0) == Refuse(401, None)
    assert faults.begin("m", "", 100.0) == Refuse(401, None)
    assert faults.begin("m", "schlüssel", 100.0) == Refuse(401, None)
    assert faults.begin("m", "right", 100.0) == Answer()


@given(st.floats(0.01, 100), st.floats(0.01, 3))
def test_log_normal_times_have_the_mean_that_was_asked_for(mean: float, cv: float) -> None:
    """Checked by the midpoint rule over probabilities; the far tail, which it cuts, holds the missing part."""
    points = 4000
    found = sum(log_normal(mean, cv, (i + 0.5) / points) for i in range(points)) / points
    assert 0.85 * mean <= found <= 1.01 * mean


def test_a_rate_limit_needs_no_probability_to_be_read_back() -> None:
    rule = RateLimit(concurrency=3)
    assert FaultPlan.model_validate_json(FaultPlan(rules=(rule,)).model_dump_json()).rules == (rule,)
