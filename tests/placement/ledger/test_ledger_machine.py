"""Whatever happens in whatever order, the ledger keeps its promises to those who wait and to those who are stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headgate.core import events
from headgate.placement.amounts import amounts
from headgate.placement.errors import CannotFitError
from headgate.placement.outbox import Command, CreateGroup, StartWork, StopWork
from headgate.placement.outcomes import LedgerSettings
from headgate.placement.pool import GroupState
from headgate.placement.request import Occupancy, Stage
from tests.examples import examples
from tests.placement.ledger.world import World, pool, reserved, rules

NODES = {name: amounts(cpu=8, gpu=4) for name in ("n0", "n1")}
POOLS = {
    "a": pool("a", cpu=12, gpu=6, reserved=(reserved(2, 1),), max_dynamic=4),
    "b": pool("b", cpu=12, gpu=6, reserved=(reserved(2, 1),), lend_reserved=False, reuse=False),
}
"""Whatever fits an empty cluster beside both reserved groups fits the quotas as well."""

LABELS_STOP = {"train": {"reward", "rollout"}, "reward": {"rollout"}}
STOPPED_FOR_OTHERS = {
    *("label_based_preemption", "same_pool_preemption", "cross_pool_preemption", "reclaimed", "shorter_work"),
}


class LedgerMachine(RuleBasedStateMachine):
    @initialize(cross_pool=st.booleans(), min_runtime_s=st.sampled_from([0, 4]), leases=st.booleans())
    def begin(self, cross_pool: bool, min_runtime_s: float, leases: bool) -> None:
        lease_s = 30.0 if leases else 1e9
        self.world = World(
            *POOLS.values(),
            nodes=NODES,
            preemption=rules(min_runtime_s=min_runtime_s, cross_pool=cross_pool, cross_pool_threshold=3),
            settings=LedgerSettings(idle_group_s=20, driver_lease_s=lease_s, heal_grace_s=3),
        )
        self.count = 0
        self.first_seen: dict[str, tuple[float, int]] = {}
        self.answered: list[Command] = []
        self.drivers = ["d0", "d1"]
        self.planned_for: dict[str, tuple[str, str]] = {}

    # Demand

    @rule(
        cpu=st.sampled_from([0.5, 1, 2]),
        gpu=st.sampled_from([0, 0.5, 1]),
        members=st.sampled_from([1, 1, 1, 2, 3]),
        in_pool=st.sampled_from("ab"),
        driver=st.integers(0, 1),
        more=st.fixed_dictionaries(
            {
                "priority": st.sampled_from([1.0, 3.0, 5.0, 8.5, 9.0, 9.5]),
                "role": st.sampled_from(["train", "reward", "rollout", None]),
                "strategy": st.sampled_from(["PACK", "STRICT_PACK", "SPREAD", "STRICT_SPREAD"]),
                "estimated_duration_s": st.sampled_from([0.0, 5.0, 50.0]),
                "preemptible": st.sampled_from([True, True, True, False]),
                "checkpoints": st.booleans(),
            }
        ),
    )
    def submit(self, cpu: float, gpu: float, members: int, in_pool: str, driver: int, more: dict[str, Any]) -> None:
        self.count += 1
        name, holder = f"t{self.count}", self.drivers[driver % len(self.drivers)]
        try:
            self.world.ask(name, cpu, gpu, members=members, pool=in_pool, holder=holder, **more)
        except CannotFitError:
            too_wide = more["strategy"] == "STRICT_SPREAD" and members > len(NODES)
            assert too_wide or len(self.world.cluster.nodes) < len(NODES), "what fits beside the reserved is let in"
            return
        request = self.world.request(name)
        self.first_seen[name] = (request.submitted_at, request.order)
        self._decide()

    @precondition(lambda self: self.first_seen)
    @rule(data=st.data())
    def submit_the_same_again(self, data: st.DataObject) -> None:
        request = self.world.request(data.draw(st.sampled_from(sorted(self.first_seen))))
        before = request.stage
        self.world.ledger.submit(request.request, request.holder, self.world.now)
        assert request.stage is before

    @precondition(lambda self: self.first_seen)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        self.world.ledger.withdraw(data.draw(st.sampled_from(sorted(self.first_seen))), self.world.now)
        self._decide()

    @rule(seconds=st.sampled_from([0.1, 1.0, 6.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds
        for driver in self.drivers:
            self.world.ledger.renew(driver, self.world.now)
        self._decide()

    @precondition(lambda self: len(self.drivers) > 1)
    @rule()
    def a_driver_dies(self) -> None:
        self.drivers.pop()

    # The executor

    @precondition(lambda self: self.world.pending)
    @rule(data=st.data(), trouble=st.sampled_from([False, False, False, True]))
    def a_command_is_carried_out(self, data: st.DataObject, trouble: bool) -> None:
        at = data.draw(st.integers(0, len(self.world.pending) - 1))
        command = self.world.pending.pop(at)
        if trouble and isinstance(command, CreateGroup):
            del self.world.cluster.groups[command.group_id]
            self.world.ledger.group_failed(command.group_id, command.epoch, "no room", self.world.now)
        elif trouble and isinstance(command, StopWork):
            self.world.ledger.work_stopped(command.request_id, command.epoch, self.world.now, saved=False, dead=False)
            self.world.pending.append(command)
        else:
            self._carry_out(command)
        self._decide()

    def _carry_out(self, command: Command) -> None:
        request = self.world.ledger.requests.get(command.request_id) if isinstance(command, StopWork) else None
        reason = request.stop_reason if request is not None and self._stops(command, request) else ""
        before = replace(request) if request is not None else None
        self.world.do(command)
        self.answered.append(command)
        if request is not None and before is not None and reason in STOPPED_FOR_OTHERS:
            assert request.stage is Stage.WAITING, "who is stopped for others waits again"
            assert (request.submitted_at, request.order) == self.first_seen[request.request_id], "in its old place"
            assert request.losses == before.losses, "and is not charged"
            assert request.preemptions == before.preemptions + (reason != "shorter_work")

    @staticmethod
    def _stops(command: StopWork, request: Occupancy) -> bool:
        return request.stage is Stage.STOPPING and request.epoch == command.epoch

    @precondition(lambda self: self.answered)
    @rule(data=st.data())
    def a_report_comes_again(self, data: st.DataObject) -> None:
        self.world.ledger.outbox.take_changes()
        command = self.answered[data.draw(st.integers(0, len(self.answered) - 1))]
        self.world.report(command)
        changes = self.world.ledger.outbox.take_changes()
        assert not changes, f"an old report of {command} changed {changes}"

    @precondition(lambda self: self.world.running())
    @rule(data=st.data(), failed=st.sampled_from([None, None, "boom"]))
    def work_ends(self, data: st.DataObject, failed: str | None) -> None:
        request = self.world.request(data.draw(st.sampled_from(sorted(self.world.running()))))
        self.world.cluster.left(request.request_id, request.epoch)
        self.world.ledger.work_ended(request.request_id, request.epoch, self.world.now, failed)
        self._decide()

    @precondition(lambda self: self.world.cluster.occupants())
    @rule(data=st.data())
    def a_process_dies(self, data: st.DataObject) -> None:
        request = self.world.request(data.draw(st.sampled_from(sorted(self.world.cluster.occupants()))))
        self.world.cluster.left(request.request_id, request.epoch)
        self.world.ledger.work_lost(request.request_id, request.epoch, self.world.now, "died")
        self._decide()

    @precondition(lambda self: self.world.cluster.occupants())
    @rule(data=st.data())
    def work_is_given_back(self, data: st.DataObject) -> None:
        request = self.world.request(data.draw(st.sampled_from(sorted(self.world.cluster.occupants()))))
        self.world.ledger.complete(request.request_id, request.lease_id, request.epoch, self.world.now)
        self._decide()

    @precondition(lambda self: any(made.is_there for made in self.world.cluster.groups.values()))
    @rule(data=st.data())
    def a_group_vanishes(self, data: st.DataObject) -> None:
        there = sorted(name for name, made in self.world.cluster.groups.items() if made.is_there)
        group_id = data.draw(st.sampled_from(there))
        self.world.cluster.groups[group_id].occupant = None
        self.world.ledger.group_lost(group_id, "it is not there", self.world.now)
        self._decide()

    # Machines, rules, pools, restarts

    @rule(data=st.data())
    def nodes_come_and_go(self, data: st.DataObject) -> None:
        there = data.draw(st.sets(st.sampled_from(sorted(NODES)), min_size=1))
        self.world.see({name: NODES[name] for name in sorted(there)})
        self._decide()

    @rule(min_runtime_s=st.sampled_from([0, 4]), cross_pool=st.booleans())
    def rules_change(self, min_runtime_s: float, cross_pool: bool) -> None:
        changed = rules(min_runtime_s=min_runtime_s, cross_pool=cross_pool, cross_pool_threshold=3)
        self.world.ledger.set_rules(changed)
        self._decide()

    @rule(name=st.sampled_from("ab"), lends=st.booleans(), reuse=st.booleans(), keeps=st.integers(0, 1))
    def a_pool_changes(self, name: str, lends: bool, reuse: bool, keeps: int) -> None:
        changed = replace(POOLS[name], lend_reserved=lends, reuse=reuse, reserved=(reserved(2, 1),) * keeps)
        self.world.ledger.change_pool(changed, self.world.now)
        self._decide()

    @rule(name=st.sampled_from("ab"), sure=st.sampled_from([False, False, True]))
    def a_pool_is_closed_and_opened_again(self, name: str, sure: bool) -> None:
        if not sure:
            return
        self.world.ledger.close_pool(name, self.world.now)
        self.world.ledger.validate()
        self._drain(lambda: name not in self.world.ledger.pools)
        assert not [group for group in self.world.ledger.groups.values() if group.pool == name]
        self.world.ledger.open_pool(POOLS[name], self.world.now)
        self._decide()

    @rule()
    def the_ledger_is_restored_from_its_rows(self) -> None:
        self.world.restart()
        self.answered.clear()
        for driver in self.drivers:
            self.world.ledger.renew(driver, self.world.now)
        self._decide()

    # What must hold

    def _decide(self) -> None:
        told = len(self.world.told)
        commands = self.world.decide()
        for command in commands:
            if isinstance(command, StopWork):
                self._assert_may_be_stopped(command)
            elif isinstance(command, StartWork):
                heir = self.planned_for.get(command.group_id)
                if heir is not None and self.world.ledger.requests[heir[0]].group_id == command.group_id:
                    assert command.request_id == heir[0], "what a victim leaves goes to its preemptor"
        for event in self.world.told[told:]:
            if isinstance(event, events.WorkPlaced) and event.step == "preemption":
                self.planned_for[event.group] = (event.request, event.group)

    def _assert_may_be_stopped(self, command: StopWork) -> None:
        if command.reason not in STOPPED_FOR_OTHERS:
            return
        victim = self.world.request(command.request_id)
        if not victim.stopped_for:
            return  # asked for again after a restart; its preemptor stands in line again
        preemptor, in_force = self.world.request(victim.stopped_for), self.world.ledger.rules
        mine, theirs = preemptor.request, victim.request
        pools = self.world.ledger.pools
        if command.reason == "reclaimed":
            assert victim.on_loan
            assert mine.priority >= pools[mine.pool].reserved_from_priority > theirs.priority
            return
        assert theirs.preemptible
        if command.reason == "shorter_work":
            assert in_force.short_first > 0
            assert mine.pool == theirs.pool
            assert mine.priority >= theirs.priority
            left_s = self.world.ledger.durations.left_s(victim, self.world.now)
            assert left_s >= 4 * preemptor.left_s / 2, "what is left of it is much longer, by powers of two"
        assert victim.preemptions < in_force.max_preemptions
        assert victim.started_at is not None
        assert self.world.now - victim.started_at >= in_force.min_runtime_s
        assert mine.pool == theirs.pool or in_force.cross_pool
        by_label = theirs.labels.get("role") in LABELS_STOP.get(mine.labels.get("role", ""), set())
        threshold = in_force.same_pool_threshold if mine.pool == theirs.pool else in_force.cross_pool_threshold
        by_length = command.reason == "shorter_work"
        assert by_label or by_length or mine.priority - theirs.priority >= threshold

    @invariant()
    def nothing_is_overcommitted(self) -> None:
        if hasattr(self, "world"):
            self.world.cluster.assert_nothing_is_overcommitted()
            self.world.ledger.validate()

    @invariant()
    def usage_adds_up_to_what_pools_are_charged_and_names_free_groups_alone(self) -> None:
        if not hasattr(self, "world"):
            return
        ledger = self.world.ledger
        for used in ledger.usage(self.world.now):
            assert used.in_use == ledger.holdings.held.get(used.pool, amounts())
            for told in used.not_given:
                assert ledger.requests[told.request_id].stage is Stage.WAITING
                assert all(ledger.groups[each].state is GroupState.FREE for each in told.group_ids)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        ledger = self.world.ledger
        self.world.see(NODES)
        for each in POOLS.values():
            ledger.change_pool(each, self.world.now)
        self._drain(lambda: all(each.stage.has_ended for each in ledger.requests.values()))
        left = {
            each.request_id: self.world.why(each.request_id).says
            for each in ledger.requests.values()
            if not each.stage.has_ended
        }
        assert not left, left
        self._drain(self._reserved_are_whole)
        assert self._reserved_are_whole(), (self.world.ledger.groups, self.world.pending)
        assert self.world.cluster.groups.keys() == ledger.groups.keys(), "nothing is left behind"

    def _reserved_are_whole(self) -> bool:
        free = [
            group.pool
            for group in self.world.ledger.groups.values()
            if group.reserved is not None and group.state is GroupState.FREE
        ]
        return sorted(free) == ["a", "b"] and len(self.world.reserved_groups()) == 2

    def _drain(self, is_done: Callable[[], bool]) -> None:
        """Carry everything out, in order; let what runs end; wait where nothing else is to be done."""
        for _ in range(400 + 40 * self.count):
            self._decide()
            if is_done():
                return
            if self.world.pending:
                self._carry_out(self.world.pending.pop(0))
                continue
            running = sorted(self.world.running())
            if running:
                request = self.world.request(running[0])
                self.world.cluster.left(running[0], request.epoch)
                self.world.ledger.work_ended(running[0], request.epoch, self.world.now)
            else:
                self.world.now += 1.0
                for driver in self.drivers:
                    self.world.ledger.renew(driver, self.world.now)


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(
    max_examples=examples(60), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
