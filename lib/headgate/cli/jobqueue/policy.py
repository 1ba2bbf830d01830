"""`headgate jobqueue policy-server` and `evaluate`: a baseline policy to try things with, and one job's evaluation."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Annotated, Final, Literal

from cyclopts import Parameter

from headgate.cli.output import AsJson, say, tell
from headgate.core.errors import InvalidInputError
from headgate.jobqueue import ReservedServer, server_in
from headgate.jobqueue.policy import (
    HEALTH_PATH,
    MAX_STEPS,
    PolicyLease,
    PolicyServer,
    SyncPolicyClient,
    baseline_policy,
    load_simulation,
    read_evaluation_task,
    run_episode,
    write_result,
)
from headgate.jobqueue.worker.reservation import WORKER_SOCKET, reserve_from_environment
from headgate.net.tls import CERTIFICATE_VARIABLE, KEY_VARIABLE, server_context

_DEFAULT_PORT: Final = 8000
"""The port of openpi's servers."""

_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def policy_server(
    *,
    policy: Annotated[Literal["scripted", "random"], Parameter(help="Which baseline.")] = "scripted",
    host: Annotated[str, Parameter(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="Port; 0 takes a free one.")] = _DEFAULT_PORT,
    delay_ms: Annotated[float, Parameter(help="Time that each action takes, as a model's would.")] = 0.0,
    grace_s: Annotated[float, Parameter(help="When stopped, wait this long for the running episode to end.")] = 30.0,
) -> int:
    """Serve a baseline policy for the grid simulator to one client at a time, over websocket and msgpack.

    The baselines are not trained; their metadata says so. SIGTERM or Ctrl-C stops the server after the running episode;
    a second one stops it at once. With HEADGATE_TLS_CERTIFICATE and HEADGATE_TLS_KEY it speaks TLS.
    """
    tls = server_context(os.environ.get(CERTIFICATE_VARIABLE, ""), os.environ.get(KEY_VARIABLE, ""))
    served = PolicyServer(baseline_policy(policy, delay_s=delay_ms / 1000), host=host, port=port, tls=tls)
    asyncio.run(_serve(served, f"baseline-{policy}", grace_s))
    return 0


def evaluate(
    *,
    task: Annotated[str | None, Parameter(help="Task; by default that of the job.")] = None,
    instance: Annotated[str | None, Parameter(help="Instance of the task; by default that of the job.")] = None,
    host: Annotated[
        str | None, Parameter(env_var="HEADGATE_RESOURCE_HOST", help="Policy server; by default one is reserved.")
    ] = None,
    port: Annotated[int, Parameter(env_var="HEADGATE_RESOURCE_PORT", help="Its port.")] = _DEFAULT_PORT,
    result: Annotated[
        Path | None, Parameter(env_var="HEADGATE_RESULT_FILE", help="File for the result, written whole or not at all.")
    ] = None,
    job_file: Annotated[
        Path | None, Parameter(env_var="HEADGATE_JOB_FILE", help="The job as JSON; `headgate jobqueue work` writes it.")
    ] = None,
    max_steps: Annotated[int, Parameter(help="Longest episode, in steps.")] = MAX_STEPS,
    act_timeout_s: Annotated[float, Parameter(help="Longest wait for one action.")] = 300.0,
    as_json: AsJson = False,
) -> int:
    """Evaluate a policy server on one instance in the grid simulator.

    Started by `headgate jobqueue work`, it needs no options. The simulator is loaded first; only then is a policy
    server reserved, so that none waits for a simulator.
    """
    if max_steps < 1 or not act_timeout_s > 0:
        raise InvalidInputError(f"--max-steps and --act-timeout-s must be > 0 (got {max_steps} and {act_timeout_s:g})")
    task, instance = read_evaluation_task(task, instance, job_file)
    simulation = load_simulation(task, instance)
    server = _server(host, port)
    lease = PolicyLease(*server.key) if server.lease_id else None
    with SyncPolicyClient(server.host, server.port, lease=lease, act_timeout_s=act_timeout_s) as client:
        outcome = {"task": task, "instance": instance, **run_episode(client, simulation, max_steps)}
    if result is not None:
        write_result(result, outcome)
    reached = "success" if outcome["success"] else "not all subgoals"
    scored = f"{task} {instance}: q_score {outcome['q_score']:.3f} ({reached})"
    return tell(outcome, f"{scored} after {outcome['steps']} steps of {outcome['policy']}", as_json=as_json)


async def _serve(server: PolicyServer, name: str, grace_s: float) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, stopped.set)
    async with server:
        health = f"http{server.url.removeprefix('ws')}{HEALTH_PATH}"
        say(f"{name} (a baseline, not a trained policy) listens at {server.url}, health at {health}")
        await stopped.wait()
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)
        await server.stop(grace_s)


def _server(host: str | None, port: int) -> ReservedServer:
    """Return the policy server; wait for a reservation if the worker has none yet."""
    if host is not None:
        named = server_in(os.environ)
        if named is None or (named.host, named.port) != (host, port):
            return ReservedServer(host, port, index=0)
        return named
    if not os.environ.get(WORKER_SOCKET):
        raise InvalidInputError(
            "no policy server is named", next_step="Give --host and --port, or let `headgate jobqueue work` start this."
        )
    return reserve_from_environment()
