"""The contenders of a comparison: our policies, the rules of other systems, and plans that nobody can beat by much."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.core.errors import did_you_mean
from headgate.elastic import ElasticConfig, Policy
from headgate.elastic.policies import policy_of
from headgate_replay.elastic.bounds import fewest_fixed
from headgate_replay.elastic.driver import played
from headgate_replay.elastic.load import InvalidLoadError, Load, Site
from headgate_replay.elastic.outcome import Outcome
from headgate_replay.elastic.peers import Clairvoyant, Fixed, Knative, Serve, Verl

_NO_BOUND: Final = 1_000_000
_BARE: Final = {"min_stable_period": 0.0}
"""Rules of other systems are carried out unchanged: our pool keeps no worker awake that they give up."""

_PLAN_EVERY_S: Final = 1.0
_NEED_WAIT_S: Final = 0.5
_MOST_SIZES: Final = 8


@dataclass(frozen=True, slots=True)
class Terms:
    """The input of all contenders; each replaces `policy` in the settings of the pool."""

    load: Load
    site: Site
    config: ElasticConfig


Made = tuple[ElasticConfig, Policy, Site]


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy, and the knob that trades its cost for waiting: its `value` in comparisons, its `sweep` for a frontier.

    `make` returns the pool's settings, the policy and the site for a value of the knob.
    """

    name: str
    says: str
    knob: str
    value: Callable[[Terms], float]
    sweep: Callable[[Terms], Sequence[float]]
    make: Callable[[Terms, float], Made]

    def play(self, terms: Terms, value: float | None = None, *, at_most_every_s: float = 0.0) -> Outcome:
        """Replay the load and return the outcome, with the usual setting of the knob unless a value is given.

        A rule that would decide more often than every `at_most_every_s` seconds decides at this interval.
        """
        config, policy, site = self.make(terms, self.value(terms) if value is None else value)
        every_s = max(config.monitoring_interval, at_most_every_s)
        config = config.model_copy(update={"monitoring_interval": every_s})
        return played(terms.load, policy, config, site, name=self.name, says=self.says)


def terms_of(load: Load, site: Site, config: ElasticConfig | None = None) -> Terms:
    """Return terms under which every request is eventually served, however long it has to wait.

    Without settings, the pool has the workers of the site with the slots of the load.
    """
    settings = config or ElasticConfig(max_workers=site.workers, requests_per_worker_capacity=load.slots)
    patient = {
        "queue_timeout": None,
        "max_queue": _NO_BOUND,
        "max_workers": min(settings.max_workers, site.workers),
        "start_timeout": max(settings.start_timeout, 2 * site.start_s),
    }
    return Terms(load, site, settings.model_copy(update=patient))


def contender(name: str) -> Contender:
    """Return a contender.

    Raises:
        InvalidLoadError: if there is none with that name.
    """
    found = CONTENDERS.get(_FORMER_NAMES.get(name, name))
    if found is None:
        hint = did_you_mean(name, CONTENDERS)
        raise InvalidLoadError(
            f"there is no policy {name!r} to replay{hint}", next_step=f"There are: {', '.join(CONTENDERS)}."
        )
    return found


def _own(name: str, says: str, knob: str, sweep: Sequence[float]) -> Contender:
    def make(terms: Terms, value: float) -> Made:
        config = ElasticConfig(**terms.config.model_dump() | {"policy": name, knob: value})
        return config, policy_of(config), terms.site

    return Contender(name, says, knob, lambda terms: float(getattr(terms.config, knob)), lambda _: sweep, make)


def _theirs(
    name: str,
    says: str,
    knob: str,
    value: float,
    sweep: Sequence[float],
    tick_s: float,
    policy: Callable[[Terms, float], Policy],
) -> Contender:
    """Return the rule of another system: our pool applies it at its interval, without what our policies add."""

    def make(terms: Terms, at: float) -> Made:
        settings = _BARE | {"monitoring_interval": tick_s}
        return terms.config.model_copy(update=settings), policy(terms, at), terms.site

    return Contender(name, says, knob, lambda _: value, lambda _: sweep, make)


def _fixed(name: str, says: str, value: Callable[[Terms], float]) -> Contender:
    """Return a pool of fixed size; its sweep has eight sizes from the average need of the work to all workers."""

    def make(terms: Terms, at: float) -> Made:
        site = dataclasses.replace(terms.site, awake=int(at))
        return terms.config.model_copy(update=_BARE), Fixed(int(at)), site

    def sizes(terms: Terms) -> list[float]:
        most = terms.config.max_workers
        least = min(most, math.ceil(terms.load.work_s / terms.load.window_s))
        step = max(1, math.ceil((most - least) / (_MOST_SIZES - 1)))
        return [float(size) for size in (*range(least, most, step), most)]

    return Contender(name, says, "workers", value, sizes, make)


def _clairvoyant(name: str, hold_s: float, says: str) -> Contender:
    def make(terms: Terms, short: float) -> Made:
        config = terms.config.model_copy(update=_BARE | {"monitoring_interval": _PLAN_EVERY_S})
        start_s, lowest = terms.site.start_s, config.min_workers
        policy = Clairvoyant(
            terms.load, start_s=start_s, every_s=_PLAN_EVERY_S, short=int(short), hold_s=hold_s, lowest=lowest
        )
        return config, policy, terms.site

    says = f"knows every arrival and service time of the future and plans for them, {says}; nobody can run it"
    sweep = (0.0, 2.0, 4.0, 5.0, 6.0, 8.0)
    return Contender(name, says, "slots short", lambda terms: terms.load.slots // 2, lambda _: sweep, make)


_PER_SLOT: Final = 0.75
"""Ray Serve aims at 2 requests per replica by default; for an engine with 8 slots it is set to 6."""

_ALL: Final = (
    _own(
        "predictive",
        "follows the staffing rule that would have cost the least on the load so far, counting waiting at its price",
        "wait_price",
        (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0),
    ),
    _own(
        "target",
        "keeps workers at a share of their capacity: scales up by a short window, down by the maximum of a long one",
        "target_load",
        (0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    ),
    _own(
        "threshold",
        "verl's rule, repaired: counts what waits and drains, and takes no step that the next one would undo",
        "scale_up_threshold",
        (0.6, 0.7, 0.8, 0.9, 1.0),
    ),
    _theirs(
        "verl",
        "the rule of verl's elastic scheduler: the share of slots in use; one worker up or down, with cooldowns",
        "scale_up_threshold",
        0.8,
        (0.6, 0.7, 0.8, 0.9),
        Verl.TICK_S,
        lambda _, value: Verl(scale_up_threshold=value),
    ),
    _theirs(
        "ray-serve",
        "Ray Serve's rule with its default delays (30 s up, 600 s down), aiming at three quarters of the slots",
        "share of slots",
        _PER_SLOT,
        (0.25, 0.5, 0.625, 0.75, 0.875, 1.0),
        Serve.TICK_S,
        lambda terms, value: Serve(target_requests=value * terms.load.slots),
    ),
    _theirs(
        "ray-serve-5-60",
        "Ray Serve's rule, tuned: 5 s up, 60 s down, look-back 5 s, aiming at three quarters of the slots",
        "share of slots",
        _PER_SLOT,
        (0.5, 0.625, 0.75, 0.875, 1.0),
        Serve.TICK_S,
        lambda terms, value: Serve(
            target_requests=value * terms.load.slots,
            look_back_period_s=5.0,
            upscale_delay_s=5.0,
            downscale_delay_s=60.0,
        ),
    ),
    _theirs(
        "knative",
        "Knative's pod autoscaler with its defaults: a stable window of 60 s, a panic window of 6 s, target 70 %",
        "target",
        0.7,
        (0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
        Knative.TICK_S,
        lambda _, value: Knative(target=value),
    ),
    _fixed("fixed", "all workers, always", lambda terms: float(terms.config.max_workers)),
    _fixed(
        "fixed-need",
        f"always the fewest workers with which 99 % wait at most {_NEED_WAIT_S:g} s; only hindsight tells how many",
        lambda terms: min(terms.config.max_workers, fewest_fixed(terms.load, wait_s=_NEED_WAIT_S)),
    ),
    _clairvoyant("clairvoyant", 60.0, "keeping workers through gaps of a minute"),
    _clairvoyant("clairvoyant-calm", 600.0, "keeping workers through gaps of ten minutes, for fewer operations"),
)

OURS: Final = str(ElasticConfig().policy)
"""The default policy of a pool."""

CONTENDERS: Final = {each.name: each for each in _ALL}
"""Name -> contender; ours first."""

_FORMER_NAMES: Final = {"seed": "verl"}
"""A former name that schedules may still hold -> the present name."""
