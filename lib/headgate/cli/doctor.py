"""`headgate doctor`: checks what a campaign needs on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx

from headgate import environments, sampling, storage
from headgate import run as runs
from headgate.cli.options import Choices
from headgate.cli.output import AsJson, counted, print_json, print_table
from headgate.config import Settings
from headgate.core import require_agreement
from headgate.core.errors import HeadgateError, OrchestratorUnreachableError


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check."""

    check: str
    is_well: bool
    found: str
    next_step: str = ""


def doctor(choices: Choices | None = None, *, as_json: AsJson = False) -> int:
    """Check Python, roster, endpoints, store, journal, sandbox, Java, environments and the Prefect API.

    Exit status 3 when something that a campaign needs is missing.
    """
    findings = asyncio.run(_examined((choices or Choices()).load().settings))
    if as_json:
        print_json([{"check": f.check, "ok": f.is_well, "found": f.found, "next_step": f.next_step} for f in findings])
    else:
        rows = [("ok" if f.is_well else "fix", f.check, f.found, f.next_step) for f in findings]
        print_table("What a campaign needs", ("", "check", "found", "next step"), rows)
    return 0 if all(f.is_well for f in findings) else 3


async def _examined(settings: Settings) -> list[Finding]:
    checks: list[tuple[str, Callable[[Settings], Awaitable[str]]]] = [
        ("Python", _python),
        ("roster", _roster),
        ("endpoints", _endpoints),
        ("sample store", _store),
        ("journal", _journal),
        ("sandbox", _sandbox),
        ("Java", _java),
        ("environments", _environments),
        ("Prefect API", _prefect),
    ]
    findings: list[Finding] = []
    for name, check in checks:
        try:
            findings.append(Finding(name, is_well=True, found=await check(settings)))
        except HeadgateError as error:
            message = " ".join(error.message.split())  # some have several lines, such as a roster's problems
            told = next((one.check for one in findings if one.found == message), None)
            found, further = (f"see {told}", "") if told else (message, error.next_step)
            findings.append(Finding(name, is_well=False, found=found, next_step=further))
    return findings


async def _python(_: Settings) -> str:
    return f"{sys.version.split()[0]} on {sys.platform}"


async def _roster(settings: Settings) -> str:
    return counted(len((await sampling.roster_source(settings.roster).load()).models), "model")


async def _endpoints(settings: Settings) -> str:
    """Ask each endpoint for its list of models: any HTTP response shows that a server is there."""
    async with runs.models_at_hand(settings) as source, httpx.AsyncClient(timeout=5.0) as client:
        urls = sorted({model.base_url for model in (await source.load()).models if model.serve is None})
        for url in urls:
            try:
                await client.get(f"{url.rstrip('/')}/models")
            except httpx.HTTPError as error:
                raise HeadgateError(
                    f"{url} does not answer ({type(error).__name__})",
                    next_step="Start the endpoint, or correct base_url in the roster.",
                ) from None
    return f"{counted(len(urls), 'endpoint')} answer{'s' * (len(urls) == 1)}"


async def _store(settings: Settings) -> str:
    store = storage.sample_store(settings)
    await store.probe()
    return f"{store.url} can be written"


async def _journal(settings: Settings) -> str:
    with contextlib.closing(storage.Journal(settings.journal, settings.campaign)) as journal:
        journal.check()
        place = settings.journal
        if isinstance(place, Path) and (free := shutil.disk_usage(place).free) < 2**26:
            told = f"{journal.place} is on a disk with {free >> 20} MiB free; at least 64 are needed"
            raise HeadgateError(told, next_step="Free space there, or name another place with --journal.")
        now = time.time()
        require_agreement(now, max(journal.times.latest() or 0.0, now), f"the newest time in {journal.place}")
        return f"{journal.place}: {journal.open_count()} tasks open, {journal.spool_count()} samples spooled"


async def _sandbox(settings: Settings) -> str:
    sandbox = environments.Sandbox()
    sandbox.require(settings.sandbox_locks)
    await sandbox.check()
    without = f", without {', '.join(sandbox.not_held)}" if sandbox.not_held else ""
    return f"untrusted programs are confined by {', '.join(await sandbox.locks())}{without}"


async def _environments(settings: Settings) -> str:
    served, registry = environments.served_environments(settings), environments.registry_of(settings)
    chosen = await asyncio.to_thread(environments.selected, settings.environments, registry)
    for one in served:
        await one.check()
    parts = [f"{len(chosen.environments)} can be sampled"]
    parts += [f"{len(served)} of them at servers that answer"] if served else []
    parts += [f"left out: {name} ({problem})" for name, problem in chosen.left_out.items()]
    parts += [f"collections: {', '.join(c.prefix for c in registry.collections() if c.problem is None) or 'none'}"]
    return "; ".join(parts)


async def _java(_: Settings) -> str:
    try:
        return str(await asyncio.to_thread(environments.java_runtime))
    except HeadgateError as error:
        return f"none: {error.message}. Only agentgym:sciworld and textworld-express need it. {error.next_step}"


async def _prefect(_: Settings) -> str:
    url = os.environ.get("PREFECT_API_URL", "")
    if not url:
        return "PREFECT_API_URL is not set; `headgate run` needs no Prefect"
    try:
        async with httpx.AsyncClient(timeout=5.0) as client:
            answer = (await client.get(f"{url.rstrip('/')}/health")).raise_for_status()
    except httpx.HTTPError as error:
        raise OrchestratorUnreachableError(
            f"the Prefect API at {url} does not answer ({type(error).__name__})"
        ) from None
    with contextlib.suppress(KeyError, ValueError):  # a response need not have a date
        require_agreement(time.time(), parsedate_to_datetime(answer.headers["Date"]).timestamp(), "the Prefect API")
    return f"{url} answers"
