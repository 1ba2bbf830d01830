"""Validation of requests, pools and amounts as written in Python, YAML or JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self, TypeVar
from uuid import uuid4

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)

from headgate.core.errors import did_you_mean
from headgate.core.flaws import flaws_raised, text_like
from headgate.placement.amounts import CPU, GPU, MEMORY, MILLI, Amounts, amounts, total
from headgate.placement.errors import InvalidPlacementError
from headgate.placement.pool import RESERVED_FROM_PRIORITY, GroupShape, Pool
from headgate.placement.request import PlacementRequest, Strategy

_MEMORY_TEXT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]i?)?B?", re.IGNORECASE)
_MEMORY_UNITS: Final = {"": 1} | {
    f"{prefix}{binary}": (1_024 if binary else 1_000) ** power
    for power, prefix in enumerate("kmgt", start=1)
    for binary in ("", "i")
}
AMOUNT_KEYS: Final = ("cpu", "gpu", "memory", "custom")


def memory_bytes(written: object) -> int:
    """Return bytes of memory as written: a number of bytes, or text such as `2 GiB`, `512MB`.

    Raises:
        InvalidPlacementError: it is neither, or not whole bytes.
    """
    match = _MEMORY_TEXT.fullmatch(written.strip()) if isinstance(written, str) else None
    if match:
        number = float(match[1]) * _MEMORY_UNITS[(match[2] or "").lower()]
        if number.is_integer():
            return int(number)
    elif isinstance(written, int) and not isinstance(written, bool) and written >= 0:
        return written
    raise InvalidPlacementError(f"memory must be whole bytes >= 0 or text such as '2 GiB' (got {written!r})")


def written_amounts(written: object) -> Amounts:
    """Return amounts of `{cpu: 2, gpu: 1, memory: 2 GiB, custom: {licence: 1}}`, or given `Amounts` as they are.

    Raises:
        InvalidPlacementError: a resource is unknown, its amount is invalid, or all amounts are zero.
    """
    if isinstance(written, Amounts):
        found = written
    elif isinstance(written, Mapping):
        found = _amounts_of(written)
    else:
        raise InvalidPlacementError(f"Resources must be a mapping such as {{cpu: 2, gpu: 1}} (got {written!r})")
    if not found:
        raise InvalidPlacementError("Resources must be more than nothing (got none)")
    if negative := [name for name, units in found.units if units < 0]:
        raise InvalidPlacementError(f"An amount of {negative[0]} must be a number >= 0 (got {found.get(negative[0])})")
    return found


def _amounts_of(written: Mapping[Any, Any]) -> Amounts:
    for key in written:
        if key not in AMOUNT_KEYS:
            meant = str(key).lower().removeprefix("num_")
            hint = did_you_mean(meant, AMOUNT_KEYS, otherwise="; name others under custom")
            raise InvalidPlacementError(f"Resources are {', '.join(AMOUNT_KEYS)} (got {key!r}){hint}")
    custom = written.get("custom", {})
    if not isinstance(custom, Mapping):
        raise InvalidPlacementError(f"custom must map names of resources to amounts (got {custom!r})")
    if taken := {CPU, GPU, MEMORY} & custom.keys():
        raise InvalidPlacementError(f"custom must not name {min(taken)!r}; write it beside custom")
    return amounts(
        cpu=written.get("cpu", 0),
        gpu=written.get("gpu", 0),
        memory_bytes=memory_bytes(written.get("memory", 0)),
        custom={str(name): amount for name, amount in custom.items()},
    )


def _read_amounts(written: object) -> Amounts:
    # Pydantic adds the location of the value to a ValueError, and to no other error.
    try:
        return written_amounts(written)
    except InvalidPlacementError as error:
        raise ValueError(error.message) from None


def _written(found: Amounts) -> dict[str, Any]:
    """Return amounts in the form that `written_amounts` reads."""
    plain = {
        "cpu": found.get(CPU) / MILLI,
        "gpu": found.get(GPU) / MILLI,
        "memory": found.get(MEMORY),
        "custom": {name: units / MILLI for name, units in found.units if name not in {CPU, GPU, MEMORY}},
    }
    return {key: number for key, number in plain.items() if number}


WrittenAmounts = Annotated[
    Amounts,
    BeforeValidator(_read_amounts),
    PlainSerializer(_written),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {
                "cpu": {"type": "number", "minimum": 0},
                "gpu": {"type": "number", "minimum": 0},
                "memory": {"type": ["integer", "string"], "description": "bytes, or text such as 2 GiB"},
                "custom": {"type": "object", "additionalProperties": {"type": "number", "minimum": 0}},
            },
            "additionalProperties": False,
        }
    ),
]

MOST_BUNDLES: Final = 256
HIGHEST_PRIORITY: Final = 1_000

_NAME: Final = "must be 1 to 100 of A-Z, a-z, 0-9, '.', '_' and '-'"
Name = Annotated[str, AfterValidator(text_like("[A-Za-z0-9._-]{1,100}", _NAME))]
Priority = Annotated[float, Field(ge=-HIGHEST_PRIORITY, le=HIGHEST_PRIORITY, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Bundles = Annotated[tuple[WrittenAmounts, ...], Field(min_length=1, max_length=MOST_BUNDLES)]


class _Spec(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _BundlesSpec(_Spec):
    """One bundle under `resources`, or several under `bundles`."""

    resources: WrittenAmounts | None = None
    bundles: Bundles | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.resources is None) == (self.bundles is None):
            got = "neither" if self.bundles is None else "both"
            raise ValueError(f"give either resources or bundles (got {got})")
        return self

    def all_bundles(self) -> tuple[Amounts, ...]:
        """Return the bundles, in whichever form they were written."""
        return self.bundles if self.resources is None else (self.resources,)  # type: ignore[return-value]  # one is given


S = TypeVar("S", bound=_Spec)


class RequestSpec(_BundlesSpec):
    """A request as written; see `PlacementRequest` for each field. A request without an id gets one."""

    request_id: Name = Field(default_factory=lambda: f"request-{uuid4().hex[:12]}")
    pool: Name
    priority: Priority = 5.0
    labels: Mapping[str, str] = Field(default_factory=dict)
    strategy: Strategy = "PACK"
    node_labels: Mapping[str, str] = Field(default_factory=dict)
    preemptible: bool = True
    estimated_duration_s: Seconds = 0.0
    restart_s: Seconds = 0.0
    min_runtime_s: Seconds | None = None
    own_process: bool = False
    checkpoints: bool = True

    def as_request(self) -> PlacementRequest:
        """Return the request."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        del fields["resources"]
        return PlacementRequest(**fields | {"bundles": self.all_bundles()})


class ShapeSpec(_BundlesSpec):
    """A reserved group as written."""

    strategy: Strategy = "STRICT_PACK"
    node_labels: Mapping[str, str] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, written: object) -> object:
        """Read `{cpu: 2}` as `{resources: {cpu: 2}}`."""
        if isinstance(written, Amounts) or (isinstance(written, Mapping) and set(written) & set(AMOUNT_KEYS)):
            return {"resources": written}
        if isinstance(written, GroupShape):
            return {
                "bundles": written.bundles,
                "strategy": written.strategy,
                "node_labels": dict(written.node_labels),
            }
        return written


class PoolSpec(_Spec):
    """A pool as written; see `Pool` for each field."""

    name: Name
    quota: WrittenAmounts
    reserved: tuple[ShapeSpec, ...] = ()
    reserved_from_priority: Priority = RESERVED_FROM_PRIORITY
    lend_reserved: bool = True
    max_dynamic: int | None = Field(default=20, ge=0)
    reuse: bool = True
    protected: bool = False
    min_available: Mapping[str, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    is_whole: bool = False

    @model_validator(mode="after")
    def _reserved_within_quota(self) -> Self:
        together = total(bundle for shape in self.reserved for bundle in shape.all_bundles())
        if not together.fits(self.quota):
            raise ValueError(f"reserved groups take {together} together, more than the quota of {self.quota}")
        return self

    @model_validator(mode="after")
    def _labels_have_values(self) -> Self:
        for written in self.min_available:
            key, _, value = written.partition("=")
            if not key or not value:
                raise ValueError(f"min_available counts label values such as 'role=rollout' (got {written!r})")
        return self

    def as_pool(self) -> Pool:
        """Return the pool."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        reserved = tuple(GroupShape(one.all_bundles(), one.strategy, one.node_labels) for one in self.reserved)
        return Pool(**fields | {"reserved": reserved})


def checked_request(**written: object) -> PlacementRequest:
    """Return the request with these fields.

    Raises:
        InvalidPlacementError: a field is unknown, missing, or breaks a rule; the message lists all of them.
    """
    return request_spec(written).as_request()


def checked_pool(**written: object) -> Pool:
    """Return the pool with these fields.

    Raises:
        InvalidPlacementError: a field is unknown, missing, or breaks a rule; the message lists all of them.
    """
    return pool_spec(written).as_pool()


def request_spec(written: Mapping[str, object]) -> RequestSpec:
    """Return a mapping as a checked request spec; raises as `checked_request`."""
    return _validated(RequestSpec, "request", written)


def pool_spec(written: Mapping[str, object]) -> PoolSpec:
    """Return a mapping as a checked pool spec; raises as `checked_pool`."""
    return _validated(PoolSpec, "pool", written)


def _validated(spec: type[S], what: str, written: Mapping[str, object]) -> S:
    name = written.get("request_id" if what == "request" else "name")
    called = f"{what} {name!r}" if isinstance(name, str) else what
    with flaws_raised(spec, InvalidPlacementError, f"This {called} cannot be used: "):
        return spec.model_validate(dict(written))
