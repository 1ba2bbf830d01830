"""Attacks by a team with its token on the jobs, servers and turns of another, and on the server that both share."""

from __future__ import annotations

import asyncio
import io
import random
import re
import time
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson

from headgate.core import Secret
from headgate.net.token_stores import open_tokens
from headgate.net.tokens import Scope, new_token
from headgate_bench.hostile.attack import Attack, Ground, Tally, attackers
from headgate_bench.jobqueue.served import served

_MARK: Final = "crown-jewels"
"""Marker in everything that belongs to the other team."""

_MOST_ANSWER: Final = 64 * 1024
_LATE_S: Final = 6.0
_USUAL: Final = (Scope.SUBMIT, Scope.CLAIM, Scope.COMPLETE, Scope.READ, Scope.LEGACY)


@dataclass(frozen=True, slots=True)
class _Queue:
    """A job queue of two teams, and the token of one of them."""

    http: aiohttp.ClientSession
    token: Secret

    async def asked(self, method: str, path: str, body: Any = None, raw: bytes | None = None) -> tuple[int, str]:
        """Return status and body of an answer."""
        data = raw or (None if body is None else orjson.dumps(body))
        headers = {"Authorization": f"Bearer {self.token.reveal()}", "Content-Type": "application/json"}
        sent = None if data is None else io.BytesIO(data)
        async with self.http.request(method, path, data=sent, headers=headers) as answer:
            return answer.status, (await answer.read()).decode(errors="replace")


async def teams(ground: Ground) -> Tally:
    """Try what team b can get from team a, and measure the service of team a's worker while b sends large bodies."""
    database, folder = f"sqlite:///{ground.folder}/queue.db", ground.folder
    store = open_tokens(database)
    tokens = {}
    for name, scopes, bound in (("admin", (Scope.ADMIN,), None), ("a", _USUAL, ["a"]), ("b", _USUAL, ["b"])):
        token, tokens[name] = new_token(name, scopes, now=time.time(), teams=bound)
        store.add(token, forget_before=0)
    store.close()
    async with served(database, folder) as server, aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as http:
        admin, a, b = (_Queue(http, tokens[name]) for name in ("admin", "a", "b"))
        lease = await _furnished(admin, a, b)
        routes = orjson.loads((await admin.asked("GET", "/openapi.json"))[1])["paths"]
        guesses = _guessing(b, routes, 20 * ground.tries, ground.rng)
        tally = await ground.tried([*_prying(a, b, lease, routes), *_spoiling(b, routes, folder), *guesses])
        many = b"{" + b",".join(b'"k%d":0' % n for n in range(90_000)) + b"}"
        siege = [partial(b.asked, "POST", path, raw=many) for path in ("/v1/jobs", "/v1/completions") for _ in range(3)]
        return await ground.besieged(tally, partial(_renewed, a, lease), attackers(siege))


async def _furnished(admin: _Queue, a: _Queue, b: _Queue) -> dict[str, Any]:
    """Give each team a server and jobs; return the claim that team a's worker holds."""
    for name, team in (("a", a), ("b", b)):
        mark = _MARK if name == "a" else "own"
        server = {"pool": name, "host": f"{mark}.example.com", "port": 8080}
        await _well(admin.asked("POST", "/v1/resources", {"resources": [server]}))
        jobs = [
            {"id": f"{name}.{n}", "team": name, "task": "radio", "pool": name, "payload": {"m": mark}} for n in range(3)
        ]
        await _well(team.asked("POST", "/v1/jobs", {"jobs": jobs}))
    await _well(b.asked("POST", "/v1/claims", {"worker": "worker-of-b", "lease_s": 600}))
    claimed = await _well(a.asked("POST", "/v1/claims", {"worker": f"worker-{_MARK}", "lease_s": 600}))
    job = claimed["jobs"][0]
    return {"job_id": job["job"]["id"], "lease_id": job["lease"]["lease_id"], "epoch": job["lease"]["epoch"]}


async def _well(asked: Awaitable[tuple[int, str]]) -> Any:
    status, said = await asked
    if status != 200:
        raise OSError(f"the job queue of the benchmark answered {status}: {said[:300]}")
    return orjson.loads(said)


async def _renewed(team: _Queue, lease: Mapping[str, Any]) -> None:
    answer = await _well(team.asked("POST", "/v1/leases/renew", {"leases": [lease]}))
    if answer["renewals"][0]["status"] != "renewed":
        raise OSError(f"the lease was not renewed: {answer}")


def _prying(a: _Queue, b: _Queue, lease: Mapping[str, Any], routes: Mapping[str, Any]) -> Iterator[Attack]:
    """Yield attempts to see, end or take what belongs to team a."""
    mine, none = lease["job_id"], "a.none"
    for path, methods in routes.items():
        for method in methods:
            if "{job_id}" in path:
                bodies = [{**lease, "result": {}, "error": "x", "reason": "x"}, {"reason": "x"}, {}]
                for body in [None] if method == "get" else bodies:
                    twins = [(path.replace("{job_id}", job) + _query(path), body) for job in (mine, none)]
                    yield Attack(f"{method} {path} of a job of team a", partial(_told_apart, b, method, twins))
            elif method == "get" and path != "/health":
                yield Attack(f"get {path}", partial(_shown, b, path))
    taken = [("/v1/jobs", {"jobs": [{"id": job, "team": "a", "task": "radio"}]}) for job in (mine, none)]
    yield Attack("submit for team a", partial(_told_apart, b, "post", taken))
    for change in ({"pool": "a"}, {"priority": 1_000_000}, {"team": "a"}):
        job = {"id": "b.new", "team": "b", "task": "radio", "pool": "b", **change}
        yield Attack(f"submit with {change}", partial(_allowed, b, "/v1/jobs", {"jobs": [job]}))
    for name, team in (("a", a), ("b", b)):
        done = f"/done/{mine}?worker=worker-{_MARK}"
        yield Attack(f"end a claim of /v1 by the legacy protocol, token {name}", partial(_allowed, team, done, None))
    server = {"pool": "b", "host": "evil.example", "port": 1}
    yield Attack("register a server", partial(_allowed, b, "/v1/resources", {"resources": [server]}))
    yield Attack("claim in the pool of team a", partial(_shown, b, "/v1/claims", {"worker": "w", "pools": ["a"]}))
    yield Attack("claim for team a", partial(_shown, b, "/v1/claims", {"worker": "w", "teams": ["a"]}))


def _spoiling(b: _Queue, routes: Mapping[str, Any], folder: Path) -> Iterator[Attack]:
    """Yield attempts to use excessive resources of the server."""
    keys = b"{" + b",".join(b'"k%d":0' % n for n in range(1_200_000)) + b"}"
    deep, text = b"[" * 1_000_000, b'{"worker": "' + b"w" * 900_000 + b'"}'
    for path, methods in routes.items():
        if "post" in methods:
            for name, raw in {"keys": keys, "depth": deep, "a long name": text}.items():
                target = path.replace("{job_id}", "b.1").replace("{pool}", "b").replace("{index}", "0") + _query(path)
                yield Attack(f"{path}: {name}", partial(_refused_in_time, b, target, raw))
    yield Attack("completions with made-up leases", partial(_kept, b, folder))


def _guessing(b: _Queue, routes: Mapping[str, Any], tries: int, rng: random.Random) -> Iterator[Attack]:
    """Yield random requests combined from all routes and fields."""
    words: list[Any] = ["a", "a.0", "b.1", "radio", "", -1, 0, 2**63, 1e308, None, True, [], {}]
    words += ["\x00", "%2e%2e", "/../"]
    fields = [
        "resources",
        "worker",
        "jobs",
        "teams",
        "pools",
        "lease_id",
        "epoch",
        "job_id",
        "result",
        "wait_s",
        "count",
    ]
    paths = [(method, path) for path, methods in routes.items() for method in methods]
    for number in range(tries):
        method, path = rng.choice(paths)
        filled = re.sub(r"\{\w+\}", lambda _: str(rng.choice(words)) or "-", path) + _query(path)
        body = {rng.choice(fields): rng.choice([*words, [{rng.choice(fields): rng.choice(words)}]]) for _ in range(4)}
        body |= {"wait_s": 0}
        yield Attack(f"guess {number}: {method} {filled}", partial(_shown, b, filled, body, method=method))


def _query(path: str) -> str:
    return "" if path.startswith(("/v1", "/openapi")) else "?worker=somebody&job_id=a.0&resource_idx=0"


async def _told_apart(b: _Queue, method: str, twins: list[tuple[str, Any]]) -> str:
    """Return how the answer about an object of team a differs from that about a missing one."""
    answers = []
    for path, body in twins:
        status, said = await b.asked(method, path, body)
        if status < 400 or _MARK in said:
            return f"{status} {said[:200]}"
        answers.append((status, re.sub(r"a\.(0|1|2|none)\b", "JOB", said)))
    return "" if answers[0] == answers[1] else f"{answers[0]} is not {answers[1]}"


async def _allowed(b: _Queue, path: str, body: Any) -> str:
    status, said = await b.asked("post", path, body)
    return "" if 400 <= status < 500 else f"{status} {said[:200]}"


async def _shown(b: _Queue, path: str, body: Any = None, *, method: str = "") -> str:
    status, said = await b.asked(method or ("get" if body is None else "post"), path, body)
    if status >= 500 and status != 503:
        return f"{status} {said[:200]}"
    return f"{status} {said[:200]}" if _MARK in said else ""


async def _refused_in_time(b: _Queue, path: str, raw: bytes) -> str:
    began = time.monotonic()
    try:
        status, said = await b.asked("post", path, raw=raw)
    except aiohttp.ClientError:  # the server hangs up if the body is too large
        status, said = 413, ""
    await b.asked("get", "/health")
    took = time.monotonic() - began
    if status >= 500 or len(said) > _MOST_ANSWER:
        return f"{status}, {len(said)} characters"
    return f"{took:.1f} s" if took > _LATE_S else ""


async def _kept(b: _Queue, folder: Path) -> str:
    def stored() -> int:
        return sum(path.stat().st_size for path in folder.glob("queue.db*"))

    before = stored()
    for number in range(8):
        body = {"lease_id": f"{number:032x}", "epoch": 1, "result": {"x": "y" * 200_000}}
        await asyncio.gather(*(b.asked("post", f"/v1/jobs/b.{n}/complete", body) for n in range(3)))
    grown = stored() - before
    return f"{grown} bytes" if grown > 2**20 else ""
