"""P15: attacks by every adversary of the threat model: how many succeed, and the goodput of others meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Final

from headgate.core.errors import InvalidInputError
from headgate_bench.artifact import at_least, at_most
from headgate_bench.definition import Bench, Chart, Outcome, Scenario
from headgate_bench.hostile.attack import Ground, Tally
from headgate_bench.hostile.models import answers, programs, rankings
from headgate_bench.hostile.servers import endpoints, messages, metadata
from headgate_bench.hostile.storage import clocks, corruption, journals
from headgate_bench.hostile.teams import teams
from headgate_bench.hostile.visitors import visitors

KINDS: Final[Mapping[str, Callable[[Ground], Awaitable[Tally]]]] = {
    kind.__name__: kind
    for kind in (
        *(answers, programs, rankings),
        *(endpoints, messages, metadata),
        *(teams, visitors),
        *(clocks, journals, corruption),
    )
}
"""What an adversary controls -> its attacks."""


@dataclass(frozen=True, slots=True)
class HostileParameters:
    """Parameters of the scenario."""

    kinds: tuple[str, ...] = ()  # adversaries, keys of `KINDS`; empty for all
    tries: int = 10  # random attacks of each kind, in addition to those that are always tried
    siege_s: float = 3.0  # how long others are served during an attack, and for comparison without one
    bar_others: float = 0.9  # minimum goodput of others during an attack, as a share of that without one


def measure(parameters: HostileParameters, bench: Bench) -> Outcome:
    """Return the outcome of the attacks of each kind."""
    if unknown := [kind for kind in parameters.kinds if kind not in KINDS]:
        raise InvalidInputError(f"there is no kind of attack {unknown[0]!r}", next_step=f"Kinds: {', '.join(KINDS)}.")
    return _outcome(asyncio.run(_tallies(parameters, bench)), parameters)


async def _tallies(parameters: HostileParameters, bench: Bench) -> list[Tally]:
    kinds = parameters.kinds or tuple(KINDS)
    tallies = []
    for number, kind in enumerate(kinds):

        def progress(share: float, what: str, number: int = number) -> None:
            bench.progress((number + share) / len(kinds), what)

        folder = bench.folder / kind
        folder.mkdir()
        rng = random.Random(f"{bench.seed} {kind}")
        tallies.append(await KINDS[kind](Ground(kind, folder, parameters.tries, parameters.siege_s, rng, progress)))
    return tallies


def _outcome(tallies: list[Tally], parameters: HostileParameters) -> Outcome:
    others = {tally.kind: tally.others for tally in tallies if tally.calm is not None}
    bars = [
        at_most(
            "P15.in",
            "attacks that got in",
            sum(len(tally.got_in) for tally in tallies),
            0,
            "attacks",
            {f"{tally.kind} tried": tally.tried for tally in tallies},
        )
    ]
    if others:
        what = "goodput of others during an attack, as a share of what it is without; lowest of all kinds"
        bars.append(at_least("P15.others", what, min(others.values()), parameters.bar_others, "x", others))
    return Outcome(
        bars=bars,
        samples=[asdict(tally) for tally in tallies],
        charts=[
            Chart(
                "Attacks tried",
                "",
                "attacks",
                "bars",
                {
                    "tried": [(tally.kind, tally.tried) for tally in tallies],
                    "got in": [(tally.kind, len(tally.got_in)) for tally in tallies],
                },
                log="y",
            )
        ],
        notes=[f"{tally.kind}: {name} got in: {what}" for tally in tallies for name, what in tally.got_in.items()],
    )


SCENARIO = Scenario(
    name="hostile",
    quick=HostileParameters(),
    full=HostileParameters(tries=200, siege_s=20.0),
    measure=measure,
)
