"""How Ray is set where Headgate starts it itself: freed room is seen in milliseconds, a dead node in two seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from headgate.placement.amounts import MEBIBYTE

TUNED: Final[Mapping[str, int | bool]] = MappingProxyType(
    {
        # Ray tries a pending group again 100 ms to 1 s after a failure. Contenders wait in the ledger and not in
        # Ray, so what fails here is a race with somebody else, which is worth another look at once.
        "gcs_create_placement_group_retry_min_interval_ms": 5,
        "gcs_create_placement_group_retry_max_interval_ms": 20,
        # Every node tells what it has free every 100 ms by default. Measured from the removal of a group until its
        # room is seen: 97 ms by default, 7 to 9 ms so; a group swapped for one of another shape: 101 and 11 ms.
        "raylet_report_resources_period_milliseconds": 10,
        # A dead node is seen after 14 s by default, after 1.5 s so.
        "health_check_initial_delay_ms": 0,
        "health_check_period_ms": 500,
        "health_check_failure_threshold": 3,
        "metrics_report_interval_ms": 1_000,
        # What work has started goes with its worker, also when that is killed from outside.
        "process_group_cleanup_enabled": True,
    }
)
"""`_system_config` of a head that Headgate starts; for other heads each is the variable `RAY_<name>`."""


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """A cluster on this machine, started where there is none.

    Attributes:
        cpus: logical CPUs; more than the machine has is allowed, as work is accounted and not confined.
        gpus: logical GPUs; None for what the machine has.
        object_store_bytes: size of the store that results of Ray's own tasks pass through.
        dashboard: whether Ray's dashboard runs too; it doubles the time to start.
        temp_dir: where Ray keeps its session; None for Ray's own choice. At most 60 characters, as sockets lie there.
        host: address of this machine under which others reach it; with any but loopback Ray listens on all interfaces,
            and its dashboard on this one.
    """

    cpus: float = 8
    gpus: float | None = None
    object_store_bytes: int = 256 * MEBIBYTE
    dashboard: bool = False
    temp_dir: str | None = None
    host: str = "127.0.0.1"

    def as_init(self) -> dict[str, Any]:
        """Return the arguments of `ray.init`."""
        return {
            "address": "local",
            "num_cpus": self.cpus,
            "num_gpus": self.gpus,
            "object_store_memory": self.object_store_bytes,
            "include_dashboard": self.dashboard,
            "dashboard_host": self.host,
            "_node_ip_address": self.host,
            "_temp_dir": self.temp_dir,
            "_system_config": dict(TUNED),
        }
