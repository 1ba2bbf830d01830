"""`headgate elastic fake-engine`: an engine that can be put to sleep, without a GPU and without a model."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from typing import Annotated

from cyclopts import Parameter

from headgate.cli.output import say
from headgate.simulation.engines import Api, EnginePlan, run_engine


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How large and how fast a simulated engine is."""

    slots: Annotated[int, Parameter(help="Requests that it runs at once.")] = 8
    reply_tokens: Annotated[int, Parameter(help="Tokens of an answer, as far as the request allows.")] = 64
    token_s: Annotated[float, Parameter(help="Seconds for each token of an answer.")] = 0.02
    prompt_token_s: Annotated[float, Parameter(help="Seconds for each token of a prompt.")] = 0.0001
    resume_s: Annotated[float, Parameter(help="Seconds that it takes to wake.")] = 1.0
    release_s: Annotated[float, Parameter(help="Seconds that it takes to go to sleep.")] = 0.2

    def plan(self, api: Api, model: str) -> EnginePlan:
        """Return the engine; raises InvalidInputError for a value that breaks a rule."""
        return EnginePlan(api=api, model=model, **asdict(self))


def fake_engine(
    *,
    kind: Annotated[Api, Parameter(help="Whose HTTP API it speaks.")] = "sglang",
    host: Annotated[str, Parameter(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Parameter(help="Port; 0 takes a free one.")] = 30_000,
    model: Annotated[str, Parameter(help="Name that it serves.")] = "fake-model",
    speed: Speed | None = None,
) -> int:
    """Serve a simulated engine that speaks SGLang's or vLLM's HTTP API, to try an elastic pool without a GPU.

    The options set how long answers are and how long they take; their text means nothing. The engine queues, streams,
    counts, sleeps and wakes as real ones do. Ctrl-C ends it once its requests are answered.
    """
    plan = (speed or Speed()).plan(kind, model)
    say(
        f"A simulated {kind} engine of {plan.slots} slots, and no language model: its answers mean nothing", stderr=True
    )
    asyncio.run(run_engine(plan, host=host, port=port))
    return 0
