"""`headgate serve-baselines`, `serve-model` and `serve-prefect`: what a campaign needs, on this machine."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headgate import orchestration
from headgate.cli.options import SettingChoices
from headgate.cli.output import say
from headgate.environments import registry_of
from headgate.models import LOCAL_MODEL, FaultPlan, run_baselines, run_local_model
from headgate.net.listener import free_port
from headgate.net.tls import server_context


def serve_baselines(
    *,
    host: Annotated[str, Parameter(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="Port; 0 takes a free one.")] = 8001,
    faults: Annotated[
        str, Parameter(help="Faults to inject, e.g. 'error:probability=0.1,status=503;slow:mean_s=0.3', or a file.")
    ] = "",
) -> int:
    """Serve the baseline agents as an OpenAI-compatible endpoint that can misbehave on request.

    Models are baseline-random, baseline-greedy and baseline-solver. These scripts know the environments;
    a roster that samples them gives each the option `headgate_task_header: true`. The model baseline-judge, for
    `headgate judge`, is a rule that looks for words. To serve environments of AgentGym servers, set `agentgym_servers`.
    """
    settings = SettingChoices().load().settings
    tls = server_context(settings.tls_certificate, settings.tls_key)
    find = registry_of(settings).environment
    run_baselines(host, port, FaultPlan.parse(faults), find_environment=find, tls=tls, announce=say)
    return 0


def serve_model(
    *,
    weights: Annotated[
        Path | None, Parameter(help="A GGUF file. Without one, SmolLM2-135M-Instruct of the extra `model`.")
    ] = None,
    name: Annotated[str, Parameter(help="Name of the model in requests.")] = LOCAL_MODEL,
    host: Annotated[str, Parameter(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="Port; 0 takes a free one.")] = 8002,
    parallel: Annotated[int, Parameter(help="Requests answered at once.")] = 4,
    threads: Annotated[int, Parameter(help="Threads for inference; at most the number of free cores.")] = 1,
) -> int:
    """Serve a language model with llama.cpp (extra `model`): your own weights, or a small model."""
    run_local_model(port, weights=weights, name=name, host=host, parallel=parallel, threads=threads, announce=say)
    return 0


def serve_prefect(
    *,
    port: Annotated[
        int, Parameter(help="Port of API and UI; 0 takes a free one.", env_var="PREFECT_SERVER_API_PORT")
    ] = 4200,
    background: Annotated[bool, Parameter(help="Return once it answers; `prefect server stop` ends it.")] = False,
) -> int:
    """Serve Prefect's API and UI on this machine, with your Prefect settings and database.

    Runs `prefect server start` set up for one machine: it needs no internet, keeps the leases of limits across a
    restart, and on Python 3.11 with SQLite does not stall for a minute after a failed statement.
    """
    port = port if background and 0 < port <= 65_535 else free_port(port)
    if not background:
        say(f"Prefect answers at http://127.0.0.1:{port} in a few seconds; Ctrl-C ends it")
        orchestration.run_server(port)
    server = asyncio.run(orchestration.start_server(port))
    say(f"Prefect {'answers' if not server.was_running else 'runs already and answers'} at {server.url}")
    say(f"Its log is {server.log}; `prefect server stop` ends it")
    if os.environ.get("PREFECT_API_URL", "").rstrip("/") != f"{server.url}/api":
        say(f"Have commands use it: export PREFECT_API_URL={server.url}/api")
    return 0
