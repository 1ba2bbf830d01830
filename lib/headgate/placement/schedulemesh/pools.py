"""ScheduleMesh's mappings of resources and pools, translated to and from Headgate's types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from headgate.placement.amounts import CPU, GPU, MEBIBYTE, MEMORY, MILLI, Amounts, amounts, of_units, total
from headgate.placement.cluster.pools import PlacementPool
from headgate.placement.errors import InvalidPlacementError
from headgate.placement.pool import GroupShape
from headgate.placement.request import Strategy
from headgate.placement.scaling import scaled_amounts

_NESTED: Final = ("custom", "custom_resources")
_DECIMALS: Final = 3
_POOL_KEYS: Final = frozenset(
    {"enable", "high_priority_pg_specs", "enable_dynamic_pgs", "max_dynamic_pgs", "pg_strategy", "enable_pg_reuse"}
)
MAX_DYNAMIC_PGS: Final = 20
"""Default limit of a pool's groups besides its reserved ones, as in ScheduleMesh."""


def amounts_of(written: Mapping[str, Any]) -> Amounts:
    """Return `{cpu, memory (MB), gpu, custom}` as amounts; any other key is a custom resource, too.

    Raises:
        InvalidPlacementError: an amount is not a number >= 0.
    """
    custom: dict[str, Any] = {}
    for key, value in written.items():
        if key in _NESTED:
            custom |= {str(name): _counted(each) for name, each in dict(value or {}).items()}
        elif key not in {"cpu", "memory", "gpu"}:
            custom[key] = _counted(value)
    memory = written.get("memory", 0)
    is_number = isinstance(memory, int | float) and not isinstance(memory, bool)
    return amounts(
        cpu=_counted(written.get("cpu", 0)),
        gpu=_counted(written.get("gpu", 0)),
        memory_bytes=round(memory * MEBIBYTE) if is_number else memory,
        custom=custom,
    )


def as_written(found: Amounts) -> dict[str, Any]:
    """Return amounts as `{cpu, memory (MB), gpu, custom}`."""
    return {
        "cpu": found.get(CPU) / MILLI,
        "memory": found.get(MEMORY) / MEBIBYTE,
        "gpu": found.get(GPU) / MILLI,
        "custom": {name: units / MILLI for name, units in found.units if name not in {CPU, GPU, MEMORY}},
    }


def times(one: Amounts, number: int) -> Amounts:
    """Return amounts multiplied by a number."""
    return of_units({name: units * number for name, units in one.units})


def pool_fields(config: Mapping[str, Any] | None, strategy: str, quota: Amounts) -> dict[str, Any]:
    """Return a `pg_pool_config` as fields of a `Pool`.

    Raises:
        ValueError: a reserved group alone is larger than the quota, or the strategy is unknown.
        InvalidPlacementError: a key is unknown, or an amount invalid.
    """
    given = dict(config or {})
    if unknown := sorted(set(given) - _POOL_KEYS):
        raise InvalidPlacementError(
            f"There is no key {unknown[0]!r} in pg_pool_config", next_step=f"Known are {', '.join(sorted(_POOL_KEYS))}."
        )
    if not given.get("enable"):
        return {"max_dynamic": None}
    shapes = _shapes(given.get("high_priority_pg_specs") or (), given.get("pg_strategy", strategy), quota)
    most = int(given.get("max_dynamic_pgs", MAX_DYNAMIC_PGS)) if given.get("enable_dynamic_pgs", True) else 0
    return {"reserved": shapes, "max_dynamic": most, "reuse": bool(given.get("enable_pg_reuse", True))}


def _shapes(specs: Sequence[Mapping[str, Any]], strategy: Any, quota: Amounts) -> tuple[GroupShape, ...]:
    if strategy not in get_args(Strategy):
        raise ValueError(f"pg_strategy must be one of {', '.join(get_args(Strategy))} (got {strategy!r})")
    sizes = tuple(amounts_of(spec) for spec in specs)
    for number, size in enumerate(sizes):
        if not size.fits(quota):
            raise ValueError(f"High-priority PG spec[{number}] exceeds pool quota: it takes {size} of {quota}")
    return tuple(GroupShape((size,), strategy) for size in sizes)


def _counted(written: Any) -> Any:
    """Return a float rounded to the decimals that amounts may have: scaled amounts come with many more."""
    return round(written, _DECIMALS) if isinstance(written, float) else written


@dataclass(frozen=True, slots=True)
class OpenPool:
    """A pool as a scheduler has opened it.

    Attributes:
        pool: the pool, which takes submissions.
        labels: labels of the pool, only reported back.
        target_agents: how many agents the quota is for; 0 if not given.
        strategy: strategy of reserved groups.
        each: what one agent takes; None if not given.
        is_ours: whether this scheduler opened it.
    """

    pool: PlacementPool
    labels: Mapping[str, str]
    target_agents: int
    strategy: str
    each: Amounts | None
    is_ours: bool

    def told(self, used: Iterable[Amounts]) -> dict[str, Any]:
        """Return ScheduleMesh's mapping of a pool; `used` has what its agents take, as written for them."""
        quota = self.pool.pool.quota
        taken = total(scaled_amounts(each, self.pool.factor) if self.pool.factor < 1 else each for each in used)
        return {
            "name": self.pool.name,
            "labels": dict(self.labels),
            "capacity": as_written(quota),
            "target_agents": self.target_agents,
            "placement_strategy": self.strategy,
            "used_resources": as_written(taken),
            "reserved_resources": as_written(Amounts()),
            "available_resources": as_written((quota - taken).clipped()),
            "default_agent_resources": None if self.each is None else as_written(self.each),
            "scale": self.pool.factor,
        }
