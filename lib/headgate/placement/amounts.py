"""Amounts of CPU, GPU, memory and named resources, counted in integers: three times 0.2 CPU is 0.6 CPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from headgate.placement.errors import InvalidPlacementError

MILLI: Final = 1_000
MEBIBYTE: Final = 2**20

CPU: Final = "CPU"
GPU: Final = "GPU"
MEMORY: Final = "memory"

_UNITS: Final = {CPU: MILLI, GPU: MILLI, MEMORY: 1}


@dataclass(frozen=True, slots=True)
class Amounts:
    """A vector of resources: CPUs, GPUs and named resources in thousandths, memory in bytes.

    Attributes:
        units: resource name -> units, sorted by name, without zeros; `CPU`, `GPU` and named ones in thousandths,
            `memory` in bytes. Negative units appear only in differences.
    """

    units: tuple[tuple[str, int], ...] = ()

    def get(self, name: str) -> int:
        """Return the units of one resource."""
        for known, units in self.units:
            if known == name:
                return units
        return 0

    def names(self) -> tuple[str, ...]:
        """Return the resources that are not zero."""
        return tuple(name for name, _ in self.units)

    def __bool__(self) -> bool:
        return bool(self.units)

    def __add__(self, other: Amounts) -> Amounts:
        if not other.units:
            return self
        if not self.units:
            return other
        sums = dict(self.units)
        for name, units in other.units:
            sums[name] = sums.get(name, 0) + units
        return of_units(sums)

    def __sub__(self, other: Amounts) -> Amounts:
        if not other.units:
            return self
        rest = dict(self.units)
        for name, units in other.units:
            rest[name] = rest.get(name, 0) - units
        return of_units(rest)

    def fits(self, room: Amounts) -> bool:
        """Tell whether this can be taken from `room`."""
        if self.units == room.units:
            return True
        have = dict(room.units)
        return all(units <= have.get(name, 0) for name, units in self.units)

    def clipped(self) -> Amounts:
        """Return this with negative units as zero."""
        return self if all(units > 0 for _, units in self.units) else of_units({n: max(0, u) for n, u in self.units})

    def share_of(self, whole: Amounts) -> float:
        """Return the dominant share: the largest part of `whole` that any one resource takes (Ghodsi et al., DRF)."""
        have = dict(whole.units)
        return max((units / have[name] for name, units in self.units if have.get(name, 0) > 0), default=0.0)

    def as_ray(self) -> dict[str, float]:
        """Return this as Ray writes resources: floats of CPUs and GPUs, bytes of memory."""
        return {name: units if name == MEMORY else units / MILLI for name, units in self.units}

    def as_options(self) -> dict[str, Any]:
        """Return this as options of a Ray task or actor."""
        named = self.as_ray()
        taken = {"num_cpus": named.pop(CPU, 0), "num_gpus": named.pop(GPU, 0), "memory": named.pop(MEMORY, None)}
        return {**taken, "resources": named or None}

    def __str__(self) -> str:
        if not self.units:
            return "nothing"
        return ", ".join(
            f"{units / MEBIBYTE:g} MiB memory" if name == MEMORY else f"{units / MILLI:g} {name}"
            for name, units in self.units
        )


NOTHING: Final = Amounts()


def of_units(units: Mapping[str, int]) -> Amounts:
    """Return the amounts of a mapping of integer units; zeros are left out."""
    return Amounts(tuple(sorted((name, number) for name, number in units.items() if number)))


def total(amounts: Iterable[Amounts]) -> Amounts:
    """Return the sum."""
    sums: dict[str, int] = {}
    for each in amounts:
        for name, units in each.units:
            sums[name] = sums.get(name, 0) + units
    return of_units(sums)


def amounts(
    cpu: float = 0, gpu: float = 0, memory_bytes: int = 0, custom: Mapping[str, float] | None = None
) -> Amounts:
    """Return amounts given in the usual units: CPUs, GPUs, bytes.

    Raises:
        InvalidPlacementError: an amount is negative, not finite, or finer than a thousandth; or a GPU amount above 1
            is not a whole number, which Ray cannot place.
    """
    written = {CPU: cpu, GPU: gpu, MEMORY: memory_bytes, **(custom or {})}
    return of_units({name: _units(name, number) for name, number in written.items()})


def of_ray(resources: Mapping[str, float]) -> Amounts:
    """Return the resources that Ray reports for a node, without its bookkeeping entries such as `node:10.0.0.1`."""
    return of_units(
        {
            name: int(number) if name == MEMORY else round(number * MILLI)
            for name, number in resources.items()
            if ":" not in name and name != "object_store_memory" and "_group_" not in name
        }
    )


def _units(name: str, number: object) -> int:
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    exact = Decimal(str(number)) if is_number else Decimal("nan")
    if not exact.is_finite() or exact < 0:
        raise InvalidPlacementError(f"An amount of {name} must be a number >= 0 (got {number!r})")
    units = exact * _UNITS.get(name, MILLI)
    if units != units.to_integral_value():
        raise InvalidPlacementError(f"An amount of {name} may have three decimals (got {number})")
    if name == GPU and exact > 1 and exact != exact.to_integral_value():
        raise InvalidPlacementError(f"An amount of GPU above 1 must be whole (got {number})")
    return int(units)
