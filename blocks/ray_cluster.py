"""The `RayCluster` block: a Ray cluster, its pools and its preemption rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from prefect.blocks.core import Block
from pydantic import Field, field_validator, model_validator

from headgate.core.errors import InvalidInputError
from headgate.placement import PoolSpec, PreemptionRules, checked_pool, checked_rules


class RayCluster(Block):
    """A Ray cluster with its pools and preemption rules. See docs/reference/prefect.md#raycluster.

    Examples:
        ```python
        from blocks import RayCluster

        block = RayCluster.load("BLOCK_NAME")
        print([pool.name for pool in block.pool_specs()], block.preemption_rules().same_pool_threshold)
        ```
    """

    _block_type_name: ClassVar[str] = "Ray Cluster"
    _block_type_slug: ClassVar[str] = "headgate-ray-cluster"
    _logo_url: ClassVar[Any] = None

    address: str = Field(
        default="",
        title="Address",
        description="Host and port of the cluster's head. Empty: RAY_ADDRESS, else a running one, else a local one.",
        pattern=r"^(|auto|local|[^\s@/]+:\d{1,5})$",
    )
    pools: list[dict[str, Any]] = Field(
        default_factory=list,
        title="Pools",
        description='E.g. [{"name": "rlhf", "quota": {"cpu": 6}, "reserved": [{"cpu": 2}]}].',
    )
    rules: dict[str, Any] = Field(
        default_factory=dict,
        title="Rules of preemption",
        description='E.g. {"label_rules": {"role": {"train": ["reward", "rollout"]}}, "cancel_timeout_s": 0.5}.',
    )
    aggressiveness: str = Field(
        default="medium",
        title="Aggressiveness",
        description="Thresholds: high, medium, low, an alias, or env:VARIABLE. medium without rules changes nothing.",
    )
    journal: str = Field(
        default="",
        title="Journal",
        description="File on the head node that keeps placements across restarts. Empty: the default file.",
    )

    @field_validator("pools")
    @classmethod
    def _usable_pools(cls, pools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        names = [_raising_value_error(lambda pool=pool: checked_pool(**pool)).name for pool in pools]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"pools must have different names (got {twice[0]!r} twice)")
        return pools

    @model_validator(mode="after")
    def _usable_rules(self) -> RayCluster:
        if "aggressiveness" in self.rules:
            raise ValueError("aggressiveness has a field of its own; leave it out of rules")
        if not self.aggressiveness.startswith("env:"):  # the variable is known only where the cluster is used
            _raising_value_error(self.preemption_rules)
        return self

    def pool_specs(self) -> list[PoolSpec]:
        """Return the pools, checked."""
        return [PoolSpec.model_validate(pool) for pool in self.pools]

    @property
    def sets_rules(self) -> bool:
        """Whether the block sets rules; if not, those in force on the cluster stay."""
        return bool(self.rules) or self.aggressiveness != "medium"

    def preemption_rules(self) -> PreemptionRules:
        """Return the rules, checked.

        Raises:
            InvalidPlacementError: if aggressiveness names a variable that is not set.
        """
        return checked_rules(aggressiveness=self.aggressiveness, **self.rules)


def _raising_value_error(check: Callable[[], Any]) -> Any:
    # Pydantic adds the field to a ValueError; it lets the library's own errors through as they are.
    try:
        return check()
    except InvalidInputError as error:
        raise ValueError(f"{error.message} {error.next_step}") from None
