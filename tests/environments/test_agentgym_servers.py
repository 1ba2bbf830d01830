"""Episodes at an AgentGym server that plays the bundled games, hangs and fails; where it dies it is a process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import urllib.request
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from headgate.core import ChatReply, ErrorKind, errors
from headgate.environments import converse
from headgate.simulation.agentgym import Fault, SimulatedServer
from headgate_environments.textcraft.environment import planned_actions
from tests.environments.agentgym_servers import served
from tests.environments.test_episode import says


class Process:
    """A server as a process."""

    def __init__(self, game):
        command = [sys.executable, "-m", "headgate.simulation.agentgym", game]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.url = self._process.stdout.readline().strip()

    def call(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data, headers), timeout=30) as response:
            return json.load(response)

    def fails(self, path, kind, **more):
        self.call("/faults", {"path": path, "kind": kind, **more})

    def stop(self):
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


@pytest.fixture
def start():
    processes = []

    def started(game):
        processes.append(Process(game))
        return processes[-1]

    yield started
    for process in processes:
        process.stop()


async def solver(messages):
    """Craft by the bundled solver's plan, whatever server poses the task."""
    turn = sum(message.role == "assistant" for message in messages) - 1
    goal = messages[2].content.rpartition("Goal: craft ")[2].rstrip(".\n")
    return ChatReply(f"Thought:\nby plan\n\nAction:\n{planned_actions(goal)[turn]}")


@pytest.mark.slow
async def test_a_task_of_a_server_is_solved_and_its_session_ended(start):
    process = start("textcraft")
    environment = served("textcraft", process.url)
    results = await asyncio.gather(*(converse(environment, index, 0, solver) for index in range(12)))
    assert [(result.score, result.success, result.error) for result in results] == [(1.0, True, None)] * 12
    assert process.call("/sessions") == {"open": [], "created": 12}


@pytest.mark.slow
async def test_a_mission_of_a_server_scores_what_the_server_says(start):
    process = start("babyai")
    result = await converse(served("babyai", process.url), 1, 0, says("Thought: near\nAction: go to red ball 1"))
    assert result.success
    assert 0.85 < result.score < 1.0
    assert result.messages[2].content.startswith("Goal: go to the red ball")


@asynccontextmanager
async def serving(*faults):
    """A server in this process."""
    simulated = SimulatedServer("textcraft")
    for fault in faults:
        simulated.plan(fault)
    async with TestServer(simulated.app) as server:
        yield simulated, served("textcraft", str(server.make_url("")))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("status", "answered POST /step with status 500: 'Internal Server Error'"),
        ("error", "failed at POST /step: simulated"),
        ("no_json", "answered POST /step with invalid JSON: '<html>Bad gateway</html>'"),
    ],
)
async def test_a_server_that_fails_in_the_middle_leaves_no_score_and_no_session(kind, said):
    async with serving(Fault("/step", kind, after=1)) as (simulated, environment):
        result = await converse(environment, 0, 0, solver)
    assert (result.score, result.error_kind, result.turns) == (None, ErrorKind.ENVIRONMENT, 2)
    assert said in result.error
    assert (simulated.created, simulated.open_sessions) == (1, ())


@pytest.mark.slow
async def test_a_server_that_dies_in_the_middle_leaves_no_score_and_the_next_episode_says_where_it_was(start):
    process = start("textcraft")
    environment = served("textcraft", process.url)
    process.fails("/step", "exit", after=1)
    result = await converse(environment, 0, 0, solver)
    assert (result.score, result.error_kind, result.turns) == (None, ErrorKind.ENVIRONMENT, 2)
    assert "cannot be reached for POST /step" in result.error
    with pytest.raises(errors.EnvironmentFailedError) as caught:
        await environment.open(1, 0)
    assert f"the AgentGym server of textcraft at {process.url} cannot be reached for POST /create" in str(caught.value)
    assert caught.value.next_step.startswith("Check the server's log, restart it")


async def test_a_server_that_hangs_is_given_up_at_the_deadline():
    async with serving(Fault("/step", "hang")) as (simulated, environment):
        episode = await environment.open(0, 0)
        episode._server._timeout_s = 0.05
        with pytest.raises(errors.EnvironmentFailedError, match=r"did not answer POST /step within 0\.05 s"):
            await episode.answer("Action: inventory")
        episode._server._timeout_s = 60.0
        await episode.close()
    assert (simulated.created, simulated.open_sessions) == (1, ())


async def test_an_episode_that_is_not_closed_keeps_its_score_and_says_so():
    async with serving(Fault("/close", "status")) as (_, environment):
        result = await converse(environment, 0, 0, solver)
    assert (result.score, result.error_kind) == (1.0, None)
    assert "closing failed: EnvironmentFailedError: the AgentGym server of textcraft" in result.error


@pytest.mark.parametrize("path", ["/create", "/reset", "/step"])
async def test_a_cancelled_episode_ends_its_session(path):
    simulated = SimulatedServer("textcraft")
    simulated.plan(Fault(path, "hang", is_carried_out=path != "/create"))
    async with TestServer(simulated.app) as server:
        playing = asyncio.create_task(converse(served("textcraft", str(server.make_url(""))), 0, 0, solver))
        await simulated.is_hanging.wait()
        playing.cancel()
        if path == "/create":
            simulated.let_go()
        with pytest.raises(asyncio.CancelledError):
            await playing
        assert simulated.open_sessions == ()
        assert simulated.created == 1


async def test_an_episode_that_takes_too_long_ends_its_session():
    simulated = SimulatedServer("textcraft")
    simulated.plan(Fault("/step", "hang"))
    async with TestServer(simulated.app) as server:
        environment = served("textcraft", str(server.make_url("")))
        environment.spec = replace(environment.spec, timeout_s=0.5)
        result = await converse(environment, 0, 0, solver)
        assert result.error_kind is ErrorKind.ENVIRONMENT
        assert simulated.open_sessions == ()


async def test_a_check_says_whether_a_server_answers():
    simulated = SimulatedServer("textcraft")
    async with TestServer(simulated.app) as server:
        environment = served("textcraft", str(server.make_url("")))
        await environment.check()
    with pytest.raises(errors.EnvironmentFailedError, match="cannot be reached for GET /"):
        await environment.check()


async def test_a_redirect_to_where_only_this_machine_may_read_is_not_followed():
    asked = []

    async def internal(request):
        asked.append(request.path)
        return web.json_response("the crown jewels")

    async def redirecting(request):
        raise web.HTTPTemporaryRedirect("/internal")

    app = web.Application()
    app.router.add_route("*", "/internal", internal)
    app.router.add_route("*", "/create", redirecting)
    async with TestServer(app) as server:
        environment = served("textcraft", str(server.make_url("")).rstrip("/"))
        result = await converse(environment, 0, 0, says("hello"))
    assert "status 307: a redirect, which is not followed" in result.error
    assert not asked


async def test_endless_informational_answers_of_a_server_end_the_episode():
    async def endless(_, writer):
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1_000)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(endless, "127.0.0.1", 0)
    async with server:
        environment = served("textcraft", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        result = await converse(environment, 0, 0, says("hello"))
    assert "more than 16 answers to one request" in result.error
