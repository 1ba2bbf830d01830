"""Settings of a Ray that Headgate starts itself: freed room is seen in milliseconds, a dead node in two seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from headgate.placement.amounts import MEBIBYTE

TUNED: Final[Mapping[str, int | bool]] = MappingProxyType(
    {
        # Ray retries a pending group 100 ms to 1 s after a failure. Contenders wait in the ledger, not in Ray, so a
        # failure here is a race with another user of Ray, and worth retrying at once.
        "gcs_create_placement_group_retry_min_interval_ms": 5,
        "gcs_create_placement_group_retry_max_interval_ms": 20,
        # By default every node reports its free resources every 100 ms. Measured from the removal of a group until its
        # room is seen free: 97 ms by default, 7 to 9 ms with 10; to replace a group by another shape: 101 and 11 ms.
        "raylet_report_resources_period_milliseconds": 10,
        # A dead node is noticed after 14 s by default, after 1.5 s with these.
        "health_check_initial_delay_ms": 0,
        "health_check_period_ms": 500,
        "health_check_failure_threshold": 3,
        "metrics_report_interval_ms": 1_000,
        # Processes started by work end with its worker, even if that is killed from outside.
        "process_group_cleanup_enabled": True,
    }
)
"""`_system_config` of a head that Headgate starts; on other heads set each as the variable `RAY_<name>`."""


@dataclass(frozen=True, slots=True)
class LocalCluster:
    """A cluster on this machine, started where there is none.

    Attributes:
        cpus: logical CPUs; may exceed those of the machine, as Ray only accounts for CPUs and does not confine work.
        gpus: logical GPUs; None for those of the machine.
        object_store_bytes: size of the store that holds the results of Ray's own tasks.
        dashboard: whether Ray's dashboard runs too; it doubles the startup time.
        temp_dir: where Ray keeps its session; None for Ray's default. At most 60 characters, as it contains sockets.
        host: address at which other machines reach this one; with any but loopback Ray listens on all interfaces,
            and its dashboard on this address.
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
