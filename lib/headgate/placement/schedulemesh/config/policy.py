"""ScheduleMesh's preemption settings, translated to Headgate's rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, Final

from headgate.placement.errors import InvalidPlacementError
from headgate.placement.rules import Aggressiveness, PreemptionRules, rules_from, unknown_setting

PreemptionAggressiveness = Aggressiveness
"""How small a difference in priority suffices for preemption; aliases and `env:VARIABLE` are accepted as text."""

RULE_OF_SETTING: Final[Mapping[str, str]] = MappingProxyType(
    {
        "same_pool_priority_threshold": "same_pool_threshold",
        "cross_pool_priority_threshold": "cross_pool_threshold",
        "enable_cross_pool_preemption": "cross_pool",
        "label_preemption_rules": "label_rules",
        "label_priority_threshold": "label_threshold",
        "enable_label_preemption": "label_preemption",
        "cancel_timeout": "cancel_timeout_s",
        "preemption_aggressiveness": "aggressiveness",
    }
)
"""Setting of ScheduleMesh -> rule."""

WITHOUT_EFFECT: Final = frozenset({"remaining_time_weight", "min_preempt_score"})
"""Settings of ScheduleMesh's score, which Headgate lacks: it chooses victims by the work lost."""

PROTECTED_POOLS: Final = "protected_pools"

SCHEDULEMESH_RULES: Final = PreemptionRules(
    min_runtime_s=0.0, patience_s=0.0, short_first=0.0, budget_share=1.0, budget_interval_s=0.0
)
"""Features that ScheduleMesh lacks are off: minimum run time, patience with work that ends soon, shorter work first,
budgets."""

_OFF: Final = ("patience_s", "short_first", "budget_share", "budget_interval_s")
"""Rules that stay off unless set; the minimum run time is set on each request instead."""

_RULES: Final = frozenset(each.name for each in fields(PreemptionRules) if each.init)


def changed_rules(before: PreemptionRules, settings: Mapping[str, object]) -> PreemptionRules:
    """Return earlier rules updated by settings, which may have ScheduleMesh's or Headgate's names.

    Patience with work that ends soon, shorter work first, and budgets are off unless they are set.

    Raises:
        InvalidPlacementError: a setting is unknown, given under both names, or invalid.
    """
    rules: dict[str, object] = {}
    for setting, value in settings.items():
        if setting in WITHOUT_EFFECT or setting == PROTECTED_POOLS:
            continue
        rule = RULE_OF_SETTING.get(setting, setting)
        if rule not in _RULES and setting not in RULE_OF_SETTING:
            raise unknown_setting(setting, {*RULE_OF_SETTING, *WITHOUT_EFFECT, PROTECTED_POOLS, *_RULES})
        if rule in rules:
            raise InvalidPlacementError(f"{rule} is given twice, once as {setting}")
        rules[rule] = value
    kept = {name: getattr(before, name) for name in _RULES} | {name: getattr(SCHEDULEMESH_RULES, name) for name in _OFF}
    if "aggressiveness" in rules:
        for name in ("label_threshold", "same_pool_threshold"):
            kept.pop(name)
    return rules_from(kept | rules)


def protected_pools(settings: Mapping[str, object]) -> frozenset[str] | None:
    """Return the pools that settings protect from preemption by other pools; None if they do not say.

    Raises:
        InvalidPlacementError: it is not a list of names.
    """
    written = settings.get(PROTECTED_POOLS)
    if written is None:
        return None
    if isinstance(written, str) or not isinstance(written, Iterable):
        raise InvalidPlacementError(f"{PROTECTED_POOLS} must be a list of pools (got {written!r})")
    return frozenset(map(str, written))


def as_policy(rules: PreemptionRules, protected: Iterable[str]) -> dict[str, Any]:
    """Return rules under ScheduleMesh's names."""
    policy = {setting: getattr(rules, rule) for setting, rule in RULE_OF_SETTING.items() if rule in _RULES}
    labels = {key: {value: list(lower) for value, lower in steps.items()} for key, steps in rules.label_rules.items()}
    return policy | {"label_preemption_rules": labels, PROTECTED_POOLS: sorted(protected)}
