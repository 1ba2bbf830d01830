"""Servers of all five AgentGym dialects in the test's own loop: a door that has to be opened, told as each tells it."""

from __future__ import annotations

from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.test_utils import TestServer

from headgate.config import load_settings
from headgate.environments import served_environments


def served(environment, url, **settings):
    """The environment that a setting names."""
    flags = {"agentgym_servers": f"{environment}={url}", **settings}
    return served_environments(load_settings(flags, environ={}).settings)[0]


class DoorServer:
    """One server. `open door` ends a task with `reward`; whatever else does nothing. Keeps what it was called with."""

    def __init__(self, dialect, reward=1.0):
        self.dialect = dialect
        self.reward = reward
        self.calls = []
        self.sessions = {}
        self.created = 0
        self.overrides = {}
        self.app = web.Application()
        for path in ("/create", "/reset", "/step", *(["/close"] if dialect not in ("alfworld", "webshop") else [])):
            self.app.router.add_post(path, self._post)
        self.app.router.add_get("/observation", self._observation)

    @asynccontextmanager
    async def running(self):
        async with TestServer(self.app) as server:
            yield str(server.make_url(""))

    async def _post(self, request):
        text = await request.text()
        body = await request.json() if text else None
        self.calls.append((request.path, body))
        if request.path in self.overrides:
            return web.json_response(self.overrides[request.path])
        return web.json_response(getattr(self, f"_{request.path[1:]}")(body))

    async def _observation(self, request):
        self.calls.append(("/observation", dict(request.query)))
        return web.json_response("WebShop [SEP] Instruction: [SEP] Find me a door [SEP] Search")

    def _create(self, body):
        if self.dialect == "textcraft":
            assert body == {"commands": None, "goal": None}
        else:
            assert body is None
        number = 40 + self.created
        self.created += 1
        self.sessions[number] = None
        if self.dialect == "webshop":
            return number
        return {"id": number, "observation": "another task", "done": False, "reward": 0}

    def _reset(self, body):
        number = body["env_idx" if self.dialect == "webshop" else "id"]
        if number not in self.sessions:
            return {"error": f"The id {number} is not valid."}
        if self.dialect == "alfworld":
            assert body["world_type"] == "Text"
        index = body[{"alfworld": "game", "webshop": "session_id"}.get(self.dialect, "data_idx")]
        self.sessions[number] = index
        text = f"door {index} is closed"
        return {
            "webshop": [text, None],
            "alfworld": {"id": number, "observation": text, "available_actions": ["open door", "look"]},
            "sciworld": {"task_description": "Open it.", "observation": text, "reward": 0, "score": 0, "done": False},
            "babyai": {
                "observation": f'{text}\nAvailable actions: ["open door"]',
                "reward": 0,
                "score": 0,
                "done": False,
            },
            "textcraft": {"id": number, "observation": text, "reward": 0, "done": False},
        }[self.dialect]

    def _step(self, body):
        is_open = body["action"] == "open door"
        reward = self.reward if is_open else 0
        told = {"reward": reward, "done": is_open}
        text = "the door is open" if is_open else "nothing happens"
        return {
            "webshop": {"state": text, "info": None, **told},
            "alfworld": {"observation": text, "available_actions": ["open door"], **told},
            "sciworld": {"observation": text, "reward": 5, "score": reward, "done": is_open},
            "babyai": {"observation": text, "reward": 0, "score": reward, "done": is_open},
            "textcraft": {"observation": text, **told},
        }[self.dialect]

    def _close(self, body):
        return self.sessions.pop(body["id"], None) is not None
