"""Preemption rules: which work may be stopped for which, validated on creation."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from typing import Final

from pydantic import TypeAdapter, ValidationError

from headgate.core.errors import did_you_mean
from headgate.placement.errors import InvalidPlacementError

LabelRules = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Label key -> value -> the values that it outranks."""

_LABEL_RULES: Final = TypeAdapter(dict[str, dict[str, tuple[str, ...]]])

_WITHOUT_CYCLE: Final = "Take one step of the cycle out: what may stop another must never be stopped by it."

_ENV: Final = "env:"
_FINEST: Final = 0.001


@dataclass(frozen=True, slots=True)
class LabelOrder:
    """A strict partial order of label sets, made by `label_order`.

    The first key, in the order of the rules, at which two sets differ decides, as in lexicographic order; all values
    that a key's rules do not name count as one. If any key could decide, two sets could outrank each other.

    Attributes:
        below: label key -> value -> every value that it outranks, directly or through others.
        longest_chain: number of steps in the longest chain of label sets that outrank each other; 0 without rules.
    """

    below: Mapping[str, Mapping[str, frozenset[str]]]
    longest_chain: int

    def outranks(self, labels: Mapping[str, str], others: Mapping[str, str]) -> bool:
        """Tell whether work with `labels` outranks work with `others`."""
        for key, below in self.below.items():
            mine, theirs = labels.get(key), others.get(key)
            mine, theirs = (value if value in below else None for value in (mine, theirs))
            if mine != theirs:
                return mine is not None and theirs in below[mine]
        return False


def label_order(rules: LabelRules) -> LabelOrder:
    """Return the order that label rules define.

    Raises:
        InvalidPlacementError: a value outranks itself, directly or through others.
    """
    below: dict[str, dict[str, frozenset[str]]] = {}
    chains = 1
    for key, steps in rules.items():
        try:
            from_the_lowest = tuple(TopologicalSorter(steps).static_order())
        except CycleError as error:
            cycle = " > ".join(reversed(error.args[1]))
            raise InvalidPlacementError(
                f"Label rules of {key!r} must have no cycle (got {cycle})", next_step=_WITHOUT_CYCLE
            ) from None
        closed: dict[str, frozenset[str]] = {}
        heights: dict[str, int] = {}
        for value in from_the_lowest:
            lower = steps.get(value, ())
            closed[value] = frozenset(lower).union(*(closed[each] for each in lower))
            heights[value] = max((heights[each] + 1 for each in lower), default=0)
        below[key] = closed
        chains *= max(heights.values(), default=0) + 1
    return LabelOrder(below, chains - 1)


class Aggressiveness(StrEnum):
    """How small a difference in priority suffices for preemption."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"

    @property
    def thresholds(self) -> tuple[float, float]:
        """The thresholds for labels and for priorities in one pool."""
        return _THRESHOLDS[self]


_THRESHOLDS: Final = {
    Aggressiveness.HIGH: (0.1, 0.5),
    Aggressiveness.MEDIUM: (0.5, 1.0),
    Aggressiveness.LOW: (1.0, 3.0),
}

_ALIASES: Final = {
    Aggressiveness.HIGH: ("high", "high_priority", "urgent", "critical", "prod"),
    Aggressiveness.MEDIUM: ("medium", "medium_priority", "normal", "default"),
    Aggressiveness.LOW: ("low", "low_priority", "background", "batch"),
}
_KNOWN_WORDS: Final = {word: level for level, words in _ALIASES.items() for word in words}


@dataclass(frozen=True, slots=True)
class PreemptionRules:
    """When running work may be preempted for waiting work. Rules that would allow a cycle are refused.

    Thus no chain of preemptions returns to where it began: along a chain of label preemptions priority rises by less
    than `same_pool_threshold`, and every other preemption lowers it by at least that.

    Attributes:
        label_rules: label key -> value -> values that it may preempt; the first key whose values differ decides.
        label_preemption: whether label rules apply.
        label_threshold: how far above the preemptor's priority a victim of a label rule may be.
        same_pool_threshold: how far below the preemptor's priority a victim in the same pool must be.
        cross_pool: whether work of other pools may be preempted.
        cross_pool_threshold: how far below the preemptor's priority a victim in another pool must be.
        cancel_timeout_s: how long a victim may take to save its state before it is killed.
        min_runtime_s: work is not preempted before it has run this long.
        max_preemptions: work preempted this often is not preempted again, and waits one band higher.
        budget_share: share of a pool's quota that may be preempted in one interval.
        budget_interval_s: the interval of `budget_share`.
        pair_interval_s: two requests preempt each other at most once in this time.
        short_first: for how many times its own expected run time a request lets shorter, later requests of its band
            go first; with 0 the earlier request goes first, and no work is stopped for work of the same band.
        patience_s: work expected to end within this time is not preempted.
        order: the order that `label_rules` define.
    """

    label_rules: LabelRules = field(default_factory=dict)
    label_preemption: bool = True
    label_threshold: float = 0.5
    same_pool_threshold: float = 1.0
    cross_pool: bool = False
    cross_pool_threshold: float = 5.0
    cancel_timeout_s: float = 0.5
    min_runtime_s: float = 30.0
    max_preemptions: int = 3
    budget_share: float = 0.5
    budget_interval_s: float = 10.0
    pair_interval_s: float = 300.0
    patience_s: float = 1.0
    short_first: float = 10.0
    order: LabelOrder = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_kinds(self)
        _check_thresholds(self)
        object.__setattr__(self, "order", label_order(self.label_rules))

    def outranks(self, labels: Mapping[str, str], others: Mapping[str, str]) -> bool:
        """Tell whether label rules are on and rank work with `labels` above work with `others`."""
        return self.label_preemption and self.order.outranks(labels, others)


def parse_aggressiveness(text: str) -> Aggressiveness:
    """Return the aggressiveness that a word names: `high`, `medium`, `low`, an alias, or `env:VARIABLE`.

    Raises:
        InvalidPlacementError: the word is unknown, or the variable is not set.
    """
    if not isinstance(text, str):
        raise InvalidPlacementError(f"Aggressiveness must be a word such as 'medium' (got {text!r})")
    word = text.strip()
    if word.lower().startswith(_ENV):
        name = word[len(_ENV) :].strip()
        value = os.environ.get(name)
        if value is None:
            raise InvalidPlacementError(
                f"Aggressiveness {text!r} names an environment variable that is not set",
                next_step=f"Set {name or 'a variable'} to high, medium or low.",
            )
        word = value.strip()
    level = _KNOWN_WORDS.get(word.lower().replace("-", "_"))
    if level is None:
        raise InvalidPlacementError(
            f"Aggressiveness must be one of {', '.join(_KNOWN_WORDS)} or env:VARIABLE (got {word!r})"
        )
    return level


def checked_rules(*, aggressiveness: str | None = None, **settings: object) -> PreemptionRules:
    """Return rules with the given settings; thresholds that are not given follow `aggressiveness`.

    Raises:
        InvalidPlacementError: a setting is unknown or invalid, or the label rules have a cycle.
    """
    known = {each.name for each in fields(PreemptionRules) if each.init}
    for key in settings:
        if key not in known:
            raise unknown_setting(key, [*known, "aggressiveness"])
    if aggressiveness is not None:
        label, same_pool = parse_aggressiveness(aggressiveness).thresholds
        settings = {"label_threshold": label, "same_pool_threshold": same_pool} | settings
    if "label_rules" in settings:
        settings["label_rules"] = _label_rules(settings["label_rules"])
    return PreemptionRules(**settings)  # type: ignore[arg-type]  # it checks the type of each itself


def rules_from(written: Mapping[str, object]) -> PreemptionRules:
    """Return rules from a mapping of settings, as in a file; see `checked_rules`."""
    if bad := [key for key in written if not isinstance(key, str)]:
        raise unknown_setting(str(bad[0]), [each.name for each in fields(PreemptionRules) if each.init])
    return checked_rules(**written)  # type: ignore[arg-type]  # each is checked there


def unknown_setting(key: str, known: Iterable[str]) -> InvalidPlacementError:
    """Return the error for an unknown preemption setting, naming the nearest known one."""
    hint = did_you_mean(key, known, cutoff=0.4)
    return InvalidPlacementError(
        f"There is no preemption setting {key!r}{hint}", next_step=f"Known are {', '.join(sorted(known))}."
    )


def _label_rules(written: object) -> LabelRules:
    """Return label rules with tuples of values, whatever sequences were given."""
    try:
        return _LABEL_RULES.validate_python(written)
    except ValidationError as error:
        wrong = error.errors()[0]
        where = "".join(f" of {key!r}" for key in wrong["loc"][:2])
        raise InvalidPlacementError(
            f"label_rules{where} must have the form {{label: {{value: [values that it may stop]}}}} "
            f"(got {wrong['input']!r})",
            next_step="Write for example {'role': {'train': ['reward', 'rollout']}}.",
        ) from None


def _check_kinds(rules: PreemptionRules) -> None:
    for name in ("label_preemption", "cross_pool"):
        if not isinstance(given := getattr(rules, name), bool):
            raise InvalidPlacementError(f"{name} must be true or false (got {given!r})")
    for each in fields(rules):
        if each.type not in {"float", "int"}:
            continue
        given = getattr(rules, each.name)
        if isinstance(given, bool) or not isinstance(given, int if each.type == "int" else int | float):
            raise InvalidPlacementError(f"{each.name} must be a number (got {given!r})")
        if not math.isfinite(given) or given < 0:
            raise InvalidPlacementError(f"{each.name} must be a number >= 0 (got {given})")


def _check_thresholds(rules: PreemptionRules) -> None:
    if rules.budget_share > 1:
        raise InvalidPlacementError(f"budget_share must be 0 to 1 (got {rules.budget_share})")
    if rules.same_pool_threshold < _FINEST:
        raise InvalidPlacementError(
            f"same_pool_threshold must be >= {_FINEST} (got {rules.same_pool_threshold})",
            next_step="At 0 two requests of equal priority would stop each other for ever; take 0.5 or more.",
        )
    for lower, higher in (("label_threshold", "same_pool_threshold"), ("same_pool_threshold", "cross_pool_threshold")):
        if getattr(rules, higher) < getattr(rules, lower):
            raise InvalidPlacementError(
                f"{higher} must be >= {lower} {getattr(rules, lower)} (got {getattr(rules, higher)})",
                next_step=f"Raise {higher} or lower {lower}.",
            )
