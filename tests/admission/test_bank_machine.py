"""The slot bank under any order of demand, answers, losses, outages and changes of the limit."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from headgate.admission.bank import BankCall, BankRules, Peer, SlotBank
from tests.admission.slot_world import LimitServer, Process
from tests.examples import examples

Pending = tuple[int, BankCall, float]
Answer = tuple[int, BankCall, float, Callable[..., Any]]


class Banks(RuleBasedStateMachine):
    """Two processes at one limit. Calls and answers take any time and come in any order; either can be lost."""

    calls = Bundle("calls")
    answers = Bundle("answers")

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.server = LimitServer(20)
        rules = BankRules(block=4)
        self.processes = [Process(SlotBank("api", f"p{i}", rules, random.Random(i))) for i in range(2)]
        self.unanswered: list[tuple[int, BankCall]] = []

    def _peers(self) -> list[Peer]:
        return [Peer(p.bank.holder, p.bank.slots_held(self.now) or 0, p.bank.wanted) for p in self.processes]

    @rule(who=st.integers(0, 1), arrive=st.integers(0, 12))
    def requests_arrive(self, who: int, arrive: int) -> None:
        process = self.processes[who]
        process.waiting += arrive
        process.tell(self.now)

    @rule(who=st.integers(0, 1), share=st.floats(0, 1))
    def requests_end(self, who: int, share: float) -> None:
        process = self.processes[who]
        process.finish(int(process.in_flight * share))
        process.tell(self.now)

    @rule(target=calls, who=st.integers(0, 1))
    def decide(self, who: int) -> Any:
        process = self.processes[who]
        process.tell(self.now)
        made = process.bank.decide(self.now)
        process.admit(self.now)
        process.tell(self.now)
        self.unanswered += [(who, call) for call in made]
        return multiple(*((who, call, self.now) for call in made))

    @rule(target=answers, pending=consumes(calls))
    def server_acts(self, pending: Pending) -> Answer:
        who, call, sent_at = pending
        return who, call, sent_at, self.server.act(call, self.processes[who].bank.holder, self.now)

    @rule(answer=consumes(answers))
    def answer_arrives(self, answer: Answer) -> None:
        who, call, sent_at, tell = answer
        self.unanswered.remove((who, call))
        tell(self.processes[who].bank, self._peers(), sent_at)

    @rule(pending=consumes(calls), is_busy=st.booleans())
    def call_is_lost(self, pending: Pending, is_busy: bool) -> None:
        self.unanswered.remove(pending[:2])
        self.processes[pending[0]].bank.failed(pending[1], self.now, reason="lost", is_busy=is_busy)

    @rule(answer=consumes(answers))
    def answer_is_lost(self, answer: Answer) -> None:
        self.unanswered.remove(answer[:2])
        self.processes[answer[0]].bank.failed(answer[1], self.now, reason="lost")

    @rule(seconds=st.one_of(st.floats(0.01, 2.0), st.floats(0.01, 100.0)))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.server.sweep(self.now)

    @rule(limit=st.one_of(st.none(), st.integers(0, 30)))
    def limit_changes(self, limit: int | None) -> None:
        if limit is None:
            self.server.leases = {}
        self.server.limit = limit

    @rule()
    def server_forgets_its_leases(self) -> None:
        self.server.leases = {}

    @invariant()
    def banks_are_sound(self) -> None:
        for process in self.processes:
            process.bank.validate()

    @invariant()
    def nothing_is_admitted_on_an_ended_lease(self) -> None:
        for process in self.processes:
            held = process.bank.slots_held(self.now)
            assert held is not None
            known = process.bank.leases(self.now)
            assert held <= sum(known.values())
            for lease_id, slots in known.items():
                grant = self.server.leases.get(lease_id)
                # The server may have lost it; while it knows it, it ends there no earlier than here.
                assert grant is None or (grant.slots == slots and self.now < grant.end)

    def teardown(self) -> None:
        """Whatever happened, closing gives everything back, and what a lost answer left behind ends with its lease."""
        if self.server.limit is None:
            self.server.limit = 20
        for who, call in self.unanswered:
            self.processes[who].bank.failed(call, self.now, reason="lost")
        for process in self.processes:
            bank = process.bank
            bank.close()
            for _ in range(100):
                for call in bank.decide(self.now):
                    self.server.answer(call, bank, [], self.now, self.now)
                following = bank.next_at(self.now)
                if bank.is_done or following is None:
                    break
                self.now = max(following, self.now + 0.01)
            assert bank.is_done
        self.server.sweep(self.now + 60 + 15)
        assert self.server.active() == 0


Banks.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=60)
TestBanks = Banks.TestCase
