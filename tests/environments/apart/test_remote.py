"""Hosts on other machines: who may speak to them, what they play, and what becomes of a run when they are gone."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from contextlib import asynccontextmanager
from dataclasses import replace

import msgpack
import pytest

from headgate.core.errors import HostLostError
from headgate.environments import converse
from headgate.environments.apart import (
    ApartLimits,
    EnvironmentHost,
    HostedEnvironment,
    RemoteHost,
    RemoteHosts,
    Whereabouts,
    frames,
)
from headgate.environments.apart.remote import SILENT_S, RemoteSeats
from headgate.environments.apart.stream import FrameStream, accepted


class Site:
    """Hosts of this process, each with its task, and a run's side of them."""

    def __init__(self):
        self.hosts = RemoteHosts()
        self.lost = []
        self.running = {}

    async def added(self, node="n1", **limits):
        placed = EnvironmentHost("127.0.0.1", node, ApartLimits(**{"processes": 1, **limits}))
        running = asyncio.create_task(placed.run())
        host = RemoteHost(f"host-{len(self.running)}", node, 4, self._ended)
        await host.connect(await asyncio.to_thread(placed.where))
        self.running[host] = (placed, running)
        self.hosts.add(host)
        return host

    def _ended(self, host):
        self.lost.append((host.name, host.why_gone))
        self.hosts.remove(host)

    async def close(self):
        for host, (_, running) in self.running.items():
            host.close("the run has ended")
            await running


@asynccontextmanager
async def site():
    there = Site()
    try:
        yield there
    finally:
        await there.close()


@pytest.fixture
def played(registry):
    """Makes an environment of the plugin that is played at a site."""

    def make(there, name, packages=()):
        hosted = registry.environment(name)
        source = replace(hosted.source, packages=packages)
        return HostedEnvironment(hosted.spec, RemoteSeats(there.hosts, source))

    return make


async def test_episodes_are_played_there_and_spread_by_what_each_host_has(played, chat):
    async with site() as there:
        first, second = await there.added(), await there.added()
        known = played(there, "odd:right")
        episodes = [await known.open(index, 7) for index in range(4)]
        assert [first.load, second.load] == [2, 2]
        assert episodes[3].opening[0].content.startswith("task 3 with seed 7 in process ")
        assert [(await episode.answer("x")).why for episode in episodes] == ["right"] * 4
        for episode in episodes:
            await episode.close()
        assert [first.load, second.load] == [0, 0]
        result = await converse(known, 1, 0, chat)
        assert (result.score, result.error) == (1.0, None)
        assert (await known.baseline("random", 3, 4, (), random.Random(1))).startswith("random 3 4 0 ")
        assert not there.lost


WRONG = {
    "odd:raises": "on node node-7: environment 'odd:raises' failed in answer: ValueError: boom",
    "odd:exits": "on node node-7: the process of environment 'odd:exits' ended in answer: it exited with status 3",
    "odd:too-high": "on node node-7: environment 'odd:too-high' failed in answer: ValueError: a score must be",
}


async def test_what_goes_wrong_there_is_told_with_the_node_and_costs_no_host(played, chat):
    async with site() as there:
        await there.added("node-7")
        for name, says in WRONG.items():
            result = await converse(played(there, name), 0, 0, chat)
            assert (result.score, result.error_kind.value) == (None, "environment"), name
            assert says in result.error, name
        assert not there.lost


async def test_an_opening_that_is_cancelled_leaves_no_episode_there(played, chat):
    async with site() as there:
        host = await there.added()
        for steps in (0, 1, 3):
            opening = asyncio.ensure_future(played(there, "odd:stubborn").open(0, 0))
            await asyncio.sleep(0.02 * steps)
            opening.cancel()
            await asyncio.wait([opening])
        result = await converse(played(there, "odd:counts"), 0, 0, chat)
        assert (result.error, result.why) == (None, "1")
        assert host.load == 0


async def test_an_episode_whose_host_is_gone_is_lost_and_nobodys_failure(played, chat):
    async with site() as there:
        host = await there.added()
        playing = asyncio.create_task(converse(played(there, "odd:waits"), 0, 0, chat))
        await asyncio.sleep(0.1)
        placed, running = there.running[host]
        placed.cancel("its place is wanted")
        with pytest.raises(HostLostError, match="on n1 ended in"):
            await playing
        assert await running == "its place was taken away"
        with pytest.raises(HostLostError, match="there is no host of environments now"):
            await played(there, "odd:right").open(0, 0)
        silent = await there.added()
        now = asyncio.get_running_loop().time()
        silent.check(now)
        assert not silent.why_gone
        silent.check(now + SILENT_S + 1)
        assert (await there.running[silent][1]).startswith("its connection ")
        assert there.lost[1] == ("host-1", "it was silent for 15 s")


async def test_another_version_or_a_missing_package_names_node_and_package(played, chat):
    async with site() as there:
        await there.added("n1")
        differs = played(there, "odd:right", (("headgate", "9.9"), ("no-such-package", "1.0")))
        result = await converse(differs, 0, 0, chat)
        assert "node n1 has headgate " in result.error
        assert ", but the run has 9.9; node n1 has no package no-such-package, but the run has 1.0" in result.error
        assert (await converse(played(there, "single:apart"), 0, 0, chat)).score == 1.0  # of another package


async def test_who_does_not_know_the_token_gets_nothing_and_keeps_nobody_out(played, chat):
    placed = EnvironmentHost("127.0.0.1", "n1", ApartLimits(processes=1))
    running = asyncio.create_task(placed.run())
    where = await asyncio.to_thread(placed.where)
    with socket.create_connection((where.address, where.port)):  # says nothing
        for said in (b"", b"GET / HTTP/1.1\r\n\r\n" * 9, bytes(64)):
            reader, writer = await asyncio.open_connection(where.address, where.port)
            writer.write(said)
            writer.write_eof()
            assert len(await reader.read()) == 32  # a random number, and the end
            writer.close()
        lost = []
        host = RemoteHost("host", "n1", 4, lost.append)
        with pytest.raises(ConnectionError):
            await host.connect(replace(where, token="00" * 32))
        await host.connect(where)
        second = RemoteHost("second", "n1", 4, lost.append)
        with pytest.raises(ConnectionError):
            await second.connect(where)
    host.close("enough")
    await running


async def test_a_run_speaks_to_no_impostor():
    async def impostor(reader, writer):
        writer.write(bytes(32))
        await reader.readexactly(64)
        writer.write(bytes(32) + frames.packed({"call": 0}))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(impostor, "127.0.0.1", 0)
    where = Whereabouts("127.0.0.1", server.sockets[0].getsockname()[1], "11" * 32)
    with pytest.raises(ConnectionError, match="is not the host that was started"):
        await RemoteHost("host", "n1", 4, lambda _: None).connect(where)
    server.close()


NOT_READ = {
    "no msgpack": struct.pack(">I", 2) + b"\xc1\xc1",
    "a list": struct.pack(">I", 1) + b"\x90",
    "no call": frames.packed({"do": "x"}),
    "an answer to nothing": frames.packed({"call": 99, "opening": []}),
    "a call of another kind": frames.packed({"call": [1]}),
    "too long": struct.pack(">I", 2**32 - 1),
    "too deep": struct.pack(">I", 100_000) + b"\x91" * 100_000,
    "too many": struct.pack(">I", 5 + 30_000_000)
    + msgpack.packb([])[:0]
    + struct.pack(">BI", 0xDD, 30_000_000)
    + bytes(30_000_000),
}


@pytest.mark.parametrize("said", NOT_READ.values(), ids=NOT_READ)
async def test_what_a_host_says_that_cannot_be_read_ends_it_and_harms_no_run(said):
    token = bytes(32)

    async def connected(reader, writer):
        assert await accepted(reader, writer, token)
        stream = FrameStream(lambda _: writer.transport.write(said), left.set_result)
        stream.begin(writer)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    ended, left = (asyncio.get_running_loop().create_future() for _ in range(2))
    host = RemoteHost("host", "n1", 4, ended.set_result)
    await host.connect(Whereabouts("127.0.0.1", server.sockets[0].getsockname()[1], token.hex()))
    assert (await ended).why_gone.startswith("it sent an unreadable frame (")
    await left
    server.close()


async def test_frames_arrive_whole_and_in_order_however_they_are_cut():
    token, got, done = bytes(32), [], asyncio.get_running_loop().create_future()
    begin = frames.packed({"do": "begin", "call": 0})
    asked = [{"call": number, "text": "x" * size} for number, size in enumerate((0, 1, 70_000, 3, 300_000, 2))]

    async def connected(reader, writer):
        assert await accepted(reader, writer, token)
        await reader.readexactly(len(begin))
        data = b"".join(map(frames.packed, asked))
        for at in range(0, len(data), 10_007):
            writer.write(data[at : at + 10_007])
            await writer.drain()
        await reader.read()
        writer.close()

    def take(frame):
        got.append(frame)
        if len(got) == len(asked):
            done.set_result(None)

    from headgate.environments.apart.stream import connected as connect

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    stream = FrameStream(take, lambda _: None)
    await connect("127.0.0.1", server.sockets[0].getsockname()[1], token, stream)
    stream.send(begin)
    await done
    assert got == asked
    stream.close("enough")
    server.close()
    await asyncio.sleep(0.05)  # until the other side has heard of it
