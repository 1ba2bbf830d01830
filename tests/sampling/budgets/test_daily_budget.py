"""The budget of a day holds whatever episodes do."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headgate.core import NO_SPENDING, ModelBudget, Price, Spending
from headgate.sampling.budgets import DailyBudget, DailyLimits, Exhausted
from tests.examples import examples

KEYS = st.sampled_from(["a", "b", "c", "d"])
AMOUNTS = st.builds(Spending, st.integers(0, 600), st.integers(0, 3), st.integers(0, 900))
DAY_S = 86_400.0


class Episodes(RuleBasedStateMachine):
    """Episodes of one model that hold, spend more or less than they held, and end, in any order."""

    @initialize(tokens=st.none() | st.integers(1, 2_000), requests=st.none() | st.integers(1, 20))
    def begin(self, tokens: int | None, requests: int | None) -> None:
        self.limits = DailyLimits(tokens, requests, 3_000)
        self.budget = DailyBudget(self.limits)
        self.now = 10_000.0
        self.spent: list[tuple[float, Spending]] = []
        self.holds: dict[str, Spending] = {}
        self.beyond = NO_SPENDING

    @rule(key=KEYS, needed=AMOUNTS)
    def hold(self, key: str, needed: Spending) -> None:
        wanted = self.holds.get(key, NO_SPENDING).at_least(needed)
        others = NO_SPENDING
        for other, held in self.holds.items():
            others = others if other == key else others.plus(held)
        refused = self.budget.hold(key, needed, self.now)
        fits = self.limits.fit(self.used().plus(others).plus(wanted))
        assert (refused is None) == fits, "it is held exactly when it fits"
        if refused is None:
            self.holds[key] = wanted
        else:
            assert refused.limit.startswith("daily_")
            assert (refused.until is None) == (not self.limits.fit(wanted)), "only what no day allows never fits"

    @rule(key=KEYS, spent=AMOUNTS)
    def settle(self, key: str, spent: Spending) -> None:
        held = self.holds.get(key, NO_SPENDING)
        self.beyond = self.beyond.plus(spent.less(held))
        self.budget.settle(key, spent, self.now)
        self.spent.append((self.now, spent))
        if key in self.holds:
            self.holds[key] = held.less(spent)

    @rule(key=KEYS)
    def release(self, key: str) -> None:
        assert self.budget.release(key) == (self.holds.pop(key, None) is not None), "once, and no more"

    @rule(seconds=st.sampled_from([0.0, 7.0, 61.0, 20_000.0, 90_000.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    def used(self) -> Spending:
        total = NO_SPENDING
        for at, spent in self.spent:
            if (at // 60 + 1) * 60 + DAY_S > self.now:
                total = total.plus(spent)
        return total

    @invariant()
    def sums_match(self) -> None:
        if not hasattr(self, "budget"):
            return
        self.budget.validate()
        held = NO_SPENDING
        for one in self.holds.values():
            held = held.plus(one)
        assert self.budget.held == held
        assert self.budget.used(self.now) == self.used()
        assert self.limits.fit(self.used().plus(held).less(self.beyond)), "never beyond it but for estimates too low"


TestEpisodes = Episodes.TestCase
TestEpisodes.settings = settings(max_examples=examples(40), stateful_step_count=30, deadline=None)


def test_a_refusal_says_which_limit_how_much_is_used_and_when_there_is_room() -> None:
    budget = DailyBudget(DailyLimits(tokens=1_000))
    budget.settle("a", Spending(900, 1), 30.0)
    refused = budget.hold("b", Spending(200, 1), 100.0)
    assert refused == Exhausted("daily_tokens", 900, 1_000, 200, until=60.0 + DAY_S)
    assert budget.hold("b", Spending(200, 1), 60.0 + DAY_S) is None


def test_a_request_that_no_day_allows_has_no_time_at_which_it_fits() -> None:
    budget = DailyBudget(DailyLimits(tokens=1_000))
    assert budget.hold("a", Spending(800, 1), 0.0) is None
    refused = budget.hold("a", Spending(1_001, 1), 0.0)
    assert refused is not None
    assert refused.until is None
    assert budget.held.tokens == 800, "nothing changed"


def test_cost_is_counted_by_the_prices_in_millionths() -> None:
    budget = ModelBudget(daily_cost=0.01, price=Price.of(3.0, 15.0))
    assert budget.spending(1_000, 200) == Spending(1_200, 1, 6_000)
    daily = DailyBudget(DailyLimits.of(budget))
    daily.settle("a", budget.spending(1_000, 200), 0.0)
    refused = daily.hold("b", budget.spending(1_000, 200), 0.0)
    assert refused is not None
    assert (refused.limit, refused.used, refused.allowed) == ("daily_cost", 0.006, 0.01)


def test_what_was_spent_before_a_restart_is_counted() -> None:
    budget = DailyBudget(DailyLimits(tokens=1_000))
    budget.restore([(50_000.0, Spending(600, 2)), (100.0, Spending(300, 1))], 60_000.0)
    assert budget.used(60_000.0) == Spending(900, 3)
    assert budget.used(120.0 + DAY_S) == Spending(600, 2)


def test_what_was_spent_before_leaves_in_its_own_time_even_if_the_budget_was_asked_first() -> None:
    budget = DailyBudget(DailyLimits(tokens=1_000))
    assert budget.lacks(Spending(1, 1), 60_000.0) is None
    budget.settle("a", Spending(50, 1), 60_000.0)
    budget.restore([(50_000.0, Spending(600, 2)), (50_010.0, Spending(20, 1)), (60_000.0, Spending(7, 1))], 60_000.0)
    budget.validate()
    assert budget.used(60_000.0) == Spending(677, 5)
    assert budget.used(50_060.0 + DAY_S) == Spending(57, 2)
    assert budget.used(60_060.0 + DAY_S) == NO_SPENDING


def test_a_request_is_in_flight_once_the_grant_covers_it_beside_what_is_in_flight_and_spent() -> None:
    budget = DailyBudget(DailyLimits(tokens=1_000))
    assert budget.covers("a", Spending(900, 9)), "nobody else spends of it"
    budget.release("a")
    budget.asked(NO_SPENDING)
    assert not budget.covers("a", Spending(1, 1))
    budget.granted(Spending(300), NO_SPENDING)
    assert budget.covers("a", Spending(200, 7)), "requests are not limited"
    assert budget.covers("a", Spending(150, 1)), "it is one episode's"
    assert not budget.covers("b", Spending(101, 1))
    budget.settle("a", Spending(150, 1), 0.0)
    assert budget.allowed == Spending(150)
    assert budget.covers("b", Spending(150, 1))
    assert not budget.covers("c", Spending(1, 1))
    budget.release("b")
    assert budget.covers("c", Spending(1, 1))
    budget.validate()


def test_what_is_spent_while_a_question_is_put_is_taken_from_its_answer() -> None:
    budget = DailyBudget(DailyLimits(tokens=1_000))
    budget.granted(Spending(500), NO_SPENDING)
    budget.settle("a", Spending(100, 1), 0.0)
    assert budget.report() == Spending(100, 1)
    budget.asked(Spending(300))
    budget.settle("a", Spending(50, 1), 0.0)
    assert budget.report() == Spending(50, 1), "told with a sample meanwhile"
    assert budget.allowed == Spending(250)
    budget.granted(Spending(400), NO_SPENDING)
    assert budget.allowed == Spending(350)
    assert budget.room(0.0) == Spending(850)


def test_what_was_not_told_after_all_is_reported_again() -> None:
    budget = DailyBudget(DailyLimits(tokens=1_000))
    budget.settle("a", Spending(100, 1), 0.0)
    lost = budget.report()
    budget.settle("a", Spending(30, 1), 0.0)
    budget.put_back(lost)
    assert budget.report() == Spending(130, 2)
    assert budget.report() == NO_SPENDING


def test_what_others_may_spend_counts_as_if_they_had() -> None:
    budget = DailyBudget(DailyLimits(tokens=1_000))
    budget.granted(Spending(1_000), Spending(800))
    assert budget.lacks(Spending(201), 0.0) is not None
    assert budget.lacks(Spending(200), 0.0) is None
    assert budget.hold("a", Spending(201), 0.0) is not None
    assert budget.used(0.0) == NO_SPENDING
