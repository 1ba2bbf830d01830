"""The attacks of `headgate bench hostile` are attacks: where nothing defends, they get in and are told."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import msgpack
import pytest

from headgate.core import ChatReply, Message, Model
from headgate.core.errors import InvalidInputError, StoreError
from headgate.environments import Limits
from headgate.environments.sandbox import Outcome, ProgramRun
from headgate.models import ChatClient
from headgate.storage import Journal, SampleStore
from headgate.storage.frames import Scan
from headgate.storage.recovery import Repaired
from headgate_bench import Bench
from headgate_bench.echo_environment import Echo
from headgate_bench.hostile import models as models_module
from headgate_bench.hostile import servers as servers_module
from headgate_bench.hostile import storage as storage_module
from headgate_bench.hostile import teams as teams_module
from headgate_bench.hostile import visitors as visitors_module
from headgate_bench.hostile.attack import Attack, Ground, Tally, answered_share, attackers
from headgate_bench.hostile.models import answers_to, programs_for, rankings_under
from headgate_bench.hostile.servers import endpoints, messages_of, metadata
from headgate_bench.hostile.storage import clocks_of, corruption_of, journals_of
from headgate_bench.hostile.visitors import visits
from headgate_bench.scenarios.hostile import KINDS, HostileParameters, measure
from tests.bench.tiny import bench


def silent(_: float, __: str) -> None:
    """Tell nobody."""


def ground(kind: str, folder: Path, tries: int = 1) -> Ground:
    """What the attacks of a kind are made with, at a size that takes no time."""
    return Ground(kind, folder, tries, 0.1, random.Random(0), silent)


async def tally_of(attacks: Iterable[Attack], *words: str) -> Tally:
    """What came of the attacks whose names begin with one of the words; of all without any."""
    return await Tally("test").of([one for one in attacks if one.name.startswith(words or "")], silent)


class OpenDoor:
    """Runs programs as they are."""

    async def run(self, program: str, stdin: str, limits: Limits) -> ProgramRun:
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", program], input=stdin, capture_output=True, text=True, check=False
        )
        return ProgramRun(Outcome.OK, done.returncode, done.stdout, done.stderr, limits.wall_s)


@pytest.fixture
def no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models_module, "SANDBOX", OpenDoor())


EXPENSIVE = ("answers", "endpoints", "messages", "metadata", "programs", "rankings", "teams", "visitors")
"""Kinds whose attacks take a second or more. What they attack has tests of its own: environments, the sandbox,
rankings, messages of policies (`test_wire.py`), addresses of the roster (`test_roster.py`), teams
(`test_authority.py`), and what visitors meet (`tests/net`)."""


@pytest.mark.usefixtures("no_sandbox")
async def test_programs_that_read_what_they_may_not_get_in_without_the_sandbox(tmp_path: Path) -> None:
    reading = [
        attack
        for attack in programs_for(tmp_path, 9, 200, random.Random(1))
        if str(tmp_path) in attack.name
        and attack.name.startswith(("open(", "os.read(", "next("))
        and "'w'" not in attack.name
    ]
    tally = await tally_of(reading[:4])
    assert tally.tried == 4
    assert len(tally.got_in) == len({attack.name for attack in reading[:4]})
    assert all("GOT IN" in what for what in tally.got_in.values())


@pytest.mark.usefixtures("no_sandbox")
async def test_programs_find_somebody_who_listens_and_connect_without_the_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = programs_for
    monkeypatch.setattr(
        models_module,
        "programs_for",
        lambda *given: [one for one in real(*given) if one.name.startswith("socket.create_connection")],
    )
    (got_in,) = (await models_module.programs(ground("programs", tmp_path))).got_in.values()
    assert "GOT IN <socket.socket" in got_in


@pytest.mark.usefixtures("no_sandbox")
async def test_a_file_that_a_program_leaves_is_seen(tmp_path: Path) -> None:
    writing = f"open({str(tmp_path / 'trace')!r}, 'w').write('x')"
    found = await models_module._forbidden(writing, tmp_path)
    assert "left traces" in found


async def test_an_answer_that_is_scored_got_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models_module, "environment", lambda _: Echo(runs_apart=False))
    tally = await tally_of(answers_to(["bench:echo"], 0, random.Random(0)))
    assert set(tally.got_in.values()) == {"score 1"}
    assert len(tally.got_in) == tally.tried


@pytest.mark.long
async def test_a_model_that_fails_where_it_is_unsure_climbs_where_missing_scores_are_left_out() -> None:
    tally = await tally_of(rankings_under(["exclude"], 1, random.Random(0)))
    assert tally.got_in
    assert all("instead of" in what for what in tally.got_in.values())
    assert not (await tally_of(rankings_under(["bound", "zero"], 1, random.Random(0)))).got_in


async def test_messages_get_in_where_they_are_read_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers_module, "decode", lambda data: msgpack.unpackb(data, strict_map_key=False))
    tally = await tally_of(messages_of(0, random.Random(0)), "keys", "a pickle", "lists of lists")
    assert set(tally.got_in) == {"keys", "a pickle", "lists of lists"}


@pytest.mark.long
async def test_a_client_that_keeps_what_it_is_told_stores_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def trusting(_: ChatClient, model: Model, __: tuple[Message, ...]) -> ChatReply:
        return ChatReply(f"your key is {model.api_key.reveal()}" if model.api_key else "hello")

    monkeypatch.setattr(ChatClient, "chat", trusting)
    tally = await endpoints(ground("endpoints", tmp_path))
    assert len(tally.got_in) == tally.tried
    assert set(tally.got_in.values()) == {"the key is in what would be stored"}
    assert tally.others == 1.0


@pytest.mark.long
async def test_metadata_services_are_called_where_nobody_looks_at_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No packet leaves the machine: the address is one that is reserved for documents.
    monkeypatch.setattr(servers_module, "_METADATA", ("2001:db8::1",))
    monkeypatch.setattr(servers_module, "_SPELLINGS", ("metadata.google.internal",))
    monkeypatch.setattr("headgate.sampling.roster_entries.is_metadata_host", lambda _: False)
    monkeypatch.setenv("HEADGATE_JOBQUEUE_ALLOW_LINK_LOCAL", "true")
    tally = await metadata(ground("metadata", tmp_path))
    assert len(tally.got_in) == tally.tried == 7


class Obliging:
    """A job queue that tells everybody everything."""

    async def asked(self, method: str, path: str, body: Any = None, raw: bytes | None = None) -> tuple[int, str]:
        del method, path, body, raw
        return 200, teams_module._MARK


async def test_a_team_that_is_told_everything_has_got_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    queue, lease = Obliging(), {"job_id": "a.0", "lease_id": "x", "epoch": 1}
    routes = {"/v1/jobs": {"get": {}, "post": {}}, "/v1/jobs/{job_id}": {"get": {}}, "/fetch": {"get": {}}}
    prying = await tally_of(teams_module._prying(queue, queue, lease, routes))
    assert len(prying.got_in) == prying.tried > 8
    guessing = await tally_of(teams_module._guessing(queue, routes, 5, random.Random(0)))
    assert len(guessing.got_in) == 5
    monkeypatch.setattr(teams_module, "_MOST_ANSWER", 1)
    spoiling = await tally_of(teams_module._spoiling(queue, routes, tmp_path), "/v1/jobs")
    assert len(spoiling.got_in) == spoiling.tried == 3


async def test_visitors_get_in_where_everybody_is_answered_and_nobody_is_sent_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = (
            b"200 OK"
            if (await reader.read(16)).startswith((b"POST /v1", b"GET /v1", b"POST /done", b"GET /heal"))
            else b"500 "
        )
        writer.write(b"HTTP/1.1 " + said + b"\r\n\r\n")
        while await reader.read(65_536):
            pass
        writer.close()

    monkeypatch.setattr(visitors_module, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(visitors_module, "_ANSWER_S", 0.5)
    async with await asyncio.start_server(welcome, "127.0.0.1", 0) as server:
        attacks = list(visits(server.sockets[0].getsockname()[1], 1, random.Random(0)))
        chosen = [one for one in attacks if one.name.startswith(("page", "a head", "a body", "bytes: b'PRI"))]
        tally = await Tally("visitors").of(chosen, silent, at_once=16)
    assert set(tally.got_in) == {one.name for one in chosen}


async def test_wrong_clocks_stop_sampling_and_free_budgets_where_every_time_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Journal, "reconcile", lambda *_: (0.0, 0))
    monkeypatch.setattr("headgate.storage.store.require_agreement", lambda *_: None)
    tally = await tally_of(clocks_of(tmp_path))
    for what in ("budget", "sampling", "sweep"):
        assert any(name.startswith(f"{what}: a clock 34560000 s ahead") for name in tally.got_in), tally.got_in


async def test_two_journals_sample_the_same_where_nobody_asks_for_leases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def renewed(*_: object, **__: object) -> None:
        """Refuse nobody."""

    monkeypatch.setattr(SampleStore, "renew", renewed)
    tally = await tally_of(journals_of(tmp_path, 5, random.Random(0)))
    assert all("journals sample" in what for what in tally.got_in.values())
    assert tally.got_in


async def test_damage_gets_in_where_nothing_is_repaired_and_nothing_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = SampleStore.scan

    async def quiet(store: SampleStore, columns: Sequence[str] | None = None) -> Scan:
        return replace(await whole(store, columns=columns), problems=())

    monkeypatch.setattr(SampleStore, "scan", quiet)
    monkeypatch.setattr(storage_module, "repair", lambda *_: Repaired({}))
    tally = await tally_of(corruption_of(tmp_path, 1, random.Random(0)))
    assert {name.partition(":")[0] for name in tally.got_in} == {"journal", "queue", "samples"}


async def test_others_who_are_not_answered_in_time_are_counted() -> None:
    turn = iter(range(10))

    async def every_other() -> None:
        if next(turn) % 2:
            await asyncio.Event().wait()

    assert await answered_share(every_other, 0.1, 100.0, 0.05) == 0.5


async def test_attackers_begin_again_until_the_siege_is_over() -> None:
    refused = 0
    many = asyncio.Event()

    async def attempt() -> None:
        nonlocal refused
        refused += 1
        if refused > 5:
            many.set()
        raise ConnectionRefusedError

    async with attackers([attempt, attempt]):
        await many.wait()
    after = refused
    await asyncio.sleep(0.05)
    assert refused == after


async def test_a_tally_says_which_attack_got_in() -> None:
    async def kept_out() -> str:
        return ""

    async def got_in() -> str:
        return "the crown jewels"

    tally = await Tally("thieves").of([Attack("door", kept_out), Attack("window", got_in)], silent, at_once=2)
    assert (tally.tried, tally.got_in, tally.others) == (2, {"window": "the crown jewels"}, 1.0)


@pytest.mark.parametrize(
    "error", [ConnectionResetError(), TimeoutError(), StoreError("gone"), aiohttp.ClientPayloadError(), TypeError()]
)
async def test_an_attack_after_which_nobody_answers_got_in_and_the_others_are_tried_all_the_same(
    error: Exception,
) -> None:
    async def crash() -> str:
        raise error

    async def kept_out() -> str:
        return ""

    tally = await Tally("crashes").of([Attack("crash", crash), Attack("knock", kept_out)], silent)
    assert tally.tried == 2
    assert tally.got_in["crash"].startswith(f"others were not answered: {type(error).__name__}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.long) if kind in EXPENSIVE else kind for kind in KINDS]
)
def test_no_attack_gets_in(kind: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, printed = bench(capsys, tmp_path, "hostile", f"kinds={kind}", "tries=4", "siege_s=0.5", "bar_others=0")
    document = json.loads(Path(printed["artifact"]).read_text())
    assert document["samples"][0]["got_in"] == {}
    assert document["samples"][0]["tried"] >= 8
    assert status == 0


def test_a_kind_of_attack_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="there is no kind of attack 'ninjas'"):
        measure(HostileParameters(kinds=("ninjas",)), Bench(0, tmp_path, silent))
