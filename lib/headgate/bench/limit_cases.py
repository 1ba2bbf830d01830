"""The cases of bar P2: providers S1 to S5, their variants, and who is measured on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from headgate.admission import AdaptiveLaw, AimdLaw, LimitLaw
from headgate.bench.rivals.limit_rules import FixedRule, InspectRule, OracleRule
from headgate.simulation.providers import LoadRecord, ProviderScript, SlotPolicy, load

Z_95: Final = 1.645
"""Standard score of the 95th percentile."""

CASES: Final = ("S1", "S2", "S3", "S3b", "S4", "S5")


@dataclass(frozen=True, slots=True)
class Setting:
    """What the cases are run with; bar P2 is measured with the defaults.

    Attributes:
        cap: requests at once; a rate cap is this many per service time.
        mean_s: mean service time.
        cv: of the service times.
        seconds: simulated.
        max_limit: the static cap that the laws are given.
        bucket: tokens that a rate-limited provider keeps.
    """

    cap: int = 40
    mean_s: float = 2.0
    cv: float = 0.5
    seconds: float = 600.0
    max_limit: int = 100
    bucket: float = 20.0


VARIANTS: Final[Mapping[str, Setting]] = {
    "cv 1": Setting(cv=1.0),
    "service 0.5 s": Setting(mean_s=0.5),
    "service 10 s": Setting(mean_s=10.0),
    "service 10 s, an hour": Setting(mean_s=10.0, seconds=3_600.0),
    "cap 8": Setting(cap=8),
    "cap 200 of 400": Setting(cap=200, max_limit=400),
    "max 1000": Setting(max_limit=1_000),
    "bucket 4": Setting(bucket=4.0),
}
"""Settings that the constants of the law were not chosen on."""


def script(case: str, setting: Setting) -> ProviderScript:
    """Return the provider of a case."""
    cap, third = float(setting.cap), setting.seconds / 3
    steady = ProviderScript(caps=((0.0, cap),), mean_s=setting.mean_s, cv=setting.cv, bucket=setting.bucket)
    rated = replace(steady, counted="rate", caps=((0.0, cap / setting.mean_s),))
    match case:
        case "S1":
            return steady
        case "S2":
            return replace(steady, caps=((0.0, cap), (third, 2 * cap), (2 * third, cap / 2)))
        case "S3":
            return rated
        case "S3b":
            return replace(rated, retry_after_s=5.0)
        case "S4":
            return replace(steady, failing_share=0.05)
        case _:
            return replace(steady, counted="sharing")


@dataclass(frozen=True, slots=True)
class Contender:
    """A law and what it does with the slot of a request that waits out its back-off.

    Attributes:
        name: for tables.
        make: the law, from its maximum and the provider that only the oracle looks at.
        policy: what its origin does.
    """

    name: str
    make: Callable[[int, ProviderScript], LimitLaw]
    policy: SlotPolicy = "held"


OURS: Final = Contender("adaptive", lambda most, _: AdaptiveLaw(most))
SEED: Final = Contender("seed 004", lambda most, _: AimdLaw(most), "released")
INSPECT: Final = Contender("inspect_ai's rule", lambda most, _: InspectRule(most))
RIVALS: Final = (
    SEED,
    INSPECT,
    Contender("fixed at the maximum", lambda most, _: FixedRule(most)),
    Contender("oracle", lambda _, provider: OracleRule(provider)),
)


@dataclass(frozen=True, slots=True)
class Score:
    """What a contender reached in one run.

    Attributes:
        goodput: good answers, in percent of what the provider could have given.
        refused: attempts answered 429, in percent.
        p95: 95th percentile of latency, relative to what it is without a queue.
    """

    goodput: float
    refused: float
    p95: float


def play(
    contender: Contender, provider: ProviderScript, *, setting: Setting, seed: int, policy: SlotPolicy | None = None
) -> LoadRecord:
    """Return one run of a contender on a provider, with the slots of its origin if not told otherwise."""
    law = contender.make(setting.max_limit, provider)
    return load(provider, law, seed=seed, seconds=setting.seconds, policy=policy or contender.policy)


def scored(record: LoadRecord, provider: ProviderScript) -> Score:
    """Return the score of a run."""
    return Score(
        100 * len(record.answered_at) / provider.capacity(record.seconds),
        100 * record.refused_share,
        record.latency_s(0.95) / provider.latency_quantile_s(Z_95),
    )
