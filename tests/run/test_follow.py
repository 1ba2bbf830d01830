"""Checkpoints that are evaluated as they appear, each by an engine of its own."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headgate.config import Settings, load_settings
from headgate.core import Serving
from headgate.core.errors import HeadgateError, InvalidInputError, JournalError, StoreError
from headgate.elastic import ElasticConfig, InvalidElasticError
from headgate.elastic.service import EnginesAtHand, Machine
from headgate.reports import CheckpointCurve, CheckpointScore
from headgate.run import FollowOrder, FollowResult, RunResult, checkpoints, follow_checkpoints, run_campaign
from headgate.run import follow as following
from headgate.run.checkpoints import Checkpoint, CheckpointFolder
from headgate.storage import SampleStore
from tests.house.tree import ROOT

ENGINE = f"{shlex.quote(sys.executable)} {shlex.quote(str(ROOT / 'tests/run/weights_engine.py'))} {{port}} {{weights}}"
LOCKED = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory'"
HEADER = {"options": {"headgate_task_header": True}}


@pytest.fixture(autouse=True)
def _folder_is_looked_at_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "LOOK_EVERY_S", 0.05)
    monkeypatch.setattr(checkpoints, "SETTLE_S", 0.1)


def order(folder: Path, **changes: Any) -> FollowOrder:
    given: dict[str, Any] = {"instances": 12, "serve": {"engine": "command", "command": ENGINE}, "entry": HEADER}
    return FollowOrder(str(folder), **(given | changes))


async def follow(
    folder: Path,
    *,
    changes: dict[str, Any] | None = None,
    journal: str = "",
    notify: tuple[str, ...] = (),
    **given: Any,
) -> FollowResult:
    settings = load_settings(
        {
            "environments": ("affine:sat-hard",),
            "store": str(folder / "store"),
            "journal": journal or str(folder / "journal"),
            "campaign": "training",
            "notify_command": notify,
            "indifference": 0.02,  # as a machine's configuration may have it; two runs must not wait for each other
        },
        environ={},
    ).settings
    given = {"until_idle": True} | given
    return await follow_checkpoints(settings, order(folder / "run-7", **(changes or {})), **given)


def write(folder: Path, **checkpoints: str) -> None:
    (folder / "run-7").mkdir(exist_ok=True)
    for name, weights in checkpoints.items():
        (folder / "run-7" / name).write_text(weights)


class AtFirstFull(Machine):
    asked = 0

    @asynccontextmanager
    async def engines(self, name: str, serving: Serving, config: ElasticConfig) -> AsyncIterator[EnginesAtHand]:
        self.asked += 1
        if self.asked <= 3:
            raise InvalidElasticError("no node has a GPU")
        async with super().engines(name, serving, config) as at_hand:
            yield at_hand


@pytest.mark.long
async def test_a_training_becomes_a_curve_that_grows(tmp_path: Path) -> None:
    write(tmp_path, step_1="random", step_2="solver", step_3="no weights")
    told: list[str] = []

    async def on_curve(curve: CheckpointCurve, point: CheckpointScore | None) -> None:
        told.append(f"{point.model} {point.verdict}" if point else f"{len(curve.points)} known")

    first = await follow(tmp_path, on_curve=on_curve)
    assert first.evaluated == ("step_1", "step_2")
    assert told[:2] == ["run-7@step_1 first", "run-7@step_2 better"]
    assert "do not load" in first.failed["step_3"]
    assert first.stopped_by == "every checkpoint was tried", "one of them failed"
    scored = [(p.step, p.missing.scored if p.missing else 0) for p in first.curve.points if p.mean]
    assert scored == [(1, 12), (2, 12)], "the same tasks for each"

    (tmp_path / "run-7" / "step_1").unlink()
    write(tmp_path, step_3="random")
    told.clear()
    again = await follow(tmp_path, on_curve=on_curve)
    assert again.evaluated == ("step_3",), "what the store has is not run again"
    assert told == ["2 known", "run-7@step_3 worse"]
    assert [p.step for p in again.curve.points if p.mean] == [1, 2, 3], "also of one whose files are gone"
    assert again.curve.best is not None
    assert again.curve.best.model == "run-7@step_2"


async def test_only_the_newest_are_evaluated_and_a_stop_ends_it(tmp_path: Path) -> None:
    write(tmp_path, **{f"step_{n}": "greedy" for n in range(30)})
    stop = asyncio.Event()

    async def on_curve(_: CheckpointCurve, __: CheckpointScore | None) -> None:
        stop.set()

    changes = {"newest": 2, "instances": 3}
    result = await follow(tmp_path, changes=changes, until_idle=False, stop=stop, on_curve=on_curve)
    assert result.evaluated == ("step_28",)
    assert result.skipped == 28
    assert result.stopped_by == "stopped by request"


async def test_a_folder_without_checkpoints_is_told_of_by_what_it_holds(tmp_path: Path) -> None:
    write(tmp_path, config="x", readme="y")
    assert (await follow(tmp_path)).stopped_by.endswith("has no number, or another name: config, readme")


async def test_a_folder_that_cannot_be_read_for_a_while_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, step_1="solver")
    stop, looks, read = asyncio.Event(), 0, CheckpointFolder.whole

    def whole(folder: CheckpointFolder, now: float) -> list[Checkpoint]:
        nonlocal looks
        looks += 1
        if looks in {2, 3}:
            raise StoreError("the bucket is away")
        return read(folder, now)

    async def on_curve(_: CheckpointCurve, __: CheckpointScore | None) -> None:
        stop.set()

    monkeypatch.setattr(CheckpointFolder, "whole", whole)
    result = await follow(tmp_path, changes={"instances": 2}, until_idle=False, stop=stop, on_curve=on_curve)
    assert result.evaluated == ("step_1",)
    looks = 1
    with pytest.raises(StoreError, match="away"):
        await follow(tmp_path)


async def test_a_store_that_cannot_be_read_for_a_while_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, step_1="solver")
    stop, reads, scan = asyncio.Event(), 0, SampleStore.scan
    points: list[CheckpointScore | None] = []

    async def flaky(store: SampleStore, *asked: Any, **given: Any) -> Any:
        nonlocal reads
        if "error" in given.get("columns", ()):  # of the follower; the run that it starts reads other columns
            reads += 1
            if reads in {2, 3, 5} or reads >= 100:
                raise StoreError("the bucket is away")
        return await scan(store, *asked, **given)

    async def on_curve(_: CheckpointCurve, point: CheckpointScore | None) -> None:
        points.append(point)
        stop.set()

    monkeypatch.setattr(SampleStore, "scan", flaky)
    monkeypatch.setattr(following, "RETRY_S", 0.01)
    result = await follow(tmp_path, changes={"instances": 2}, until_idle=False, stop=stop, on_curve=on_curve)
    assert (result.evaluated, len(points)) == (("step_1",), 1)
    write(tmp_path, step_2="solver")
    for how in ({}, {"until_idle": False, "duration_s": 0.5}):
        reads = 98
        with pytest.raises(StoreError, match="away"):
            await follow(tmp_path, **how)


async def test_a_damaged_part_of_the_store_is_told_of_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, step_1="solver")
    await follow(tmp_path, changes={"instances": 2})
    (part,) = (tmp_path / "store").rglob("*.parquet")
    part.write_bytes(b"damaged")
    stop = asyncio.Event()

    async def on_curve(_: CheckpointCurve, __: CheckpointScore | None) -> None:
        stop.set()

    with caplog.at_level("WARNING"):
        result = await follow(tmp_path, changes={"instances": 2}, until_idle=False, stop=stop, on_curve=on_curve)
    assert result.failed == {"step_1": "1 part of the store cannot be read"}
    (told,) = (one for one in caplog.messages if one.startswith("checkpoints_unread"))
    assert f"{part.name}" in told
    assert "its samples are left out: does not match its checksum" in told


async def test_a_journal_that_cannot_be_opened_for_a_while_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk; one that could never be opened is told at once."""
    write(tmp_path, step_1="solver", step_2="solver")
    stop, tries, failing = asyncio.Event(), 0, {1, 3, 4}

    async def campaign(settings: Settings, **given: Any) -> RunResult:
        nonlocal tries
        tries += 1
        if tries in failing:
            raise JournalError("the journal cannot be opened: disk I/O error")
        return await run_campaign(settings, **given)

    async def on_curve(curve: CheckpointCurve, _: CheckpointScore | None) -> None:
        if len(curve.points) == 2:
            stop.set()

    monkeypatch.setattr(following, "run_campaign", campaign)
    monkeypatch.setattr(following, "RETRY_S", 0.01)
    given: dict[str, Any] = {"changes": {"instances": 2}, "until_idle": False, "stop": stop, "on_curve": on_curve}
    with pytest.raises(JournalError, match="disk I/O error"):
        await follow(tmp_path, **given)
    result = await follow(tmp_path, **given)
    assert (result.evaluated, tries) == (("step_1", "step_2"), 5)


async def test_a_folder_that_is_gone_for_a_while_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where its file system is mounted anew, or a training begins again."""
    write(tmp_path)
    stop, looks, read, place = asyncio.Event(), 0, CheckpointFolder.whole, tmp_path / "run-7"

    def whole(folder: CheckpointFolder, now: float) -> list[Checkpoint]:
        nonlocal looks
        looks += 1
        if looks == 2:
            place.rename(tmp_path / "away")
        if looks == 4:
            (tmp_path / "away").rename(place)
            stop.set()
        return read(folder, now)

    monkeypatch.setattr(CheckpointFolder, "whole", whole)
    monkeypatch.setattr(following, "LOOK_EVERY_S", 0.01)
    assert (await follow(tmp_path, until_idle=False, stop=stop)).stopped_by == "stopped by request"
    assert looks == 4
    place.rmdir()
    with pytest.raises(InvalidInputError, match="there is no folder"):
        await follow(tmp_path, until_idle=False)


async def test_a_checkpoint_whose_engine_had_no_place_is_tried_again_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the cluster is away when the checkpoint appears; with `until_idle` it is tried once."""

    write(tmp_path, step_1="solver")
    stop, hosts, told = asyncio.Event(), AtFirstFull(), list[str]()

    async def on_curve(_: CheckpointCurve, point: CheckpointScore | None) -> None:
        told.append(point.model if point else "no score")
        if point:
            stop.set()

    monkeypatch.setattr(following, "RETRY_S", 0.01)
    given: dict[str, Any] = {"changes": {"instances": 2}, "engine_hosts": hosts, "on_curve": on_curve}
    once = await follow(tmp_path, **given)
    assert (once.evaluated, hosts.asked) == ((), 1)
    result = await follow(tmp_path, until_idle=False, stop=stop, duration_s=20, **given)
    assert result.evaluated == ("step_1",)
    assert result.failed == {}
    assert told == ["no score"] * 3 + ["run-7@step_1"]


async def test_an_engine_that_fails_with_further_tasks_of_a_scored_checkpoint_is_told(tmp_path: Path) -> None:
    write(tmp_path, step_1="solver")
    told: list[str] = []

    async def on_curve(_: CheckpointCurve, point: CheckpointScore | None) -> None:
        told.append(point.model if point else "")

    await follow(tmp_path, changes={"instances": 2})
    result = await follow(tmp_path, changes={"instances": 3}, engine_hosts=AtFirstFull(), on_curve=on_curve)
    assert "no node has a GPU" in result.failed["step_1"]
    assert (result.evaluated, result.stopped_by) == ((), "every checkpoint was tried")
    assert told == [""], "its scores are no news"


async def test_people_are_told_of_a_checkpoint_that_is_worse_and_of_one_whose_engine_fails(tmp_path: Path) -> None:
    write(tmp_path, step_1="solver", step_2="random")
    notify = ("sh", "-c", f"cd {shlex.quote(str(tmp_path))}; cat >> told; echo >> told")
    await follow(tmp_path, notify=notify)
    write(tmp_path, step_3="solver")
    await follow(tmp_path, notify=notify, engine_hosts=AtFirstFull())
    told = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    assert [(one["type"], one["subject"]) for one in told] == [
        ("headgate.checkpoint.regressed", "model/run-7@step_2"),
        ("headgate.checkpoint.failed", "model/run-7@step_3"),
    ]
    assert "run-7@step_2 is worse than run-7@step_1, the best before it: -" in told[0]["text"]
    assert "no node has a GPU" in told[1]["text"]


async def test_tasks_that_a_killed_run_still_has_in_hand_are_taken_when_the_journal_counts_it_as_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, step_1="solver")
    waited, in_hand = list[float](), frozenset({("run-7@step_1", "affine:sat-hard", 2)})

    async def until_set(_: asyncio.Event, wait_s: float) -> None:
        waited.append(wait_s)

    async def campaign(settings: Settings, **given: Any) -> RunResult:
        if waited and waited[-1] == settings.journal_lease_s:
            return await run_campaign(settings, **given)
        return replace(await run_campaign(settings, **(given | {"instances": 2})), in_hand=in_hand)

    monkeypatch.setattr(following, "until_set", until_set)
    monkeypatch.setattr(following, "run_campaign", campaign)
    result = await follow(tmp_path, changes={"instances": 3})
    assert result.evaluated == ("step_1",)
    (point,) = result.curve.points
    assert point.missing is not None
    assert point.missing.samples == 3


async def test_two_do_not_follow_the_same_training(tmp_path: Path) -> None:
    write(tmp_path)
    stop = asyncio.Event()
    first = asyncio.create_task(follow(tmp_path, until_idle=False, stop=stop))
    await asyncio.sleep(0)
    while not list(tmp_path.rglob("follow-*.lock")):  # noqa: ASYNC110, ASYNC240 - nobody tells when a lock is taken
        await asyncio.sleep(0.01)
    with pytest.raises(InvalidInputError, match="are already being followed in campaign training, by process"):
        await follow(tmp_path)
    stop.set()
    assert (await first).evaluated == ()


@pytest.mark.slow
async def test_two_machines_that_share_a_journal_do_not_follow_the_same_training(
    tmp_path: Path, postgres_url: str
) -> None:
    """Each has a folder of its own; the connections of the first are cut, and it is still the only one."""
    stop, machines = asyncio.Event(), (tmp_path / "a", tmp_path / "b")
    for machine in machines:
        machine.mkdir()
        write(machine)
    with psycopg.connect(postgres_url, autocommit=True) as database:

        async def locked() -> None:
            async with asyncio.timeout(30):
                while not database.execute(LOCKED).fetchall():  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.05)

        first = asyncio.create_task(follow(machines[0], journal=postgres_url, until_idle=False, stop=stop))
        for _ in range(2):
            await locked()
            with pytest.raises(InvalidInputError, match=r"followed in campaign training, by process \d+ on .+, which"):
                await follow(machines[1], journal=postgres_url)
            database.execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory'")
        await locked()
    stop.set()
    assert (await first).evaluated == ()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"newest": 0}, r"newest must be >= 1 \(got 0\)"),
        ({"serve": {"engine": "tgi"}}, "engine"),
        ({"serve": {"engine": "command"}}, "command"),
        ({"name": "a b"}, "name"),
    ],
)
async def test_what_cannot_be_followed_is_refused_before_anything_begins(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    write(tmp_path, step_1="solver")
    with pytest.raises(HeadgateError, match=says):
        await follow(tmp_path, changes=changes)
    assert not (tmp_path / "store").exists()
