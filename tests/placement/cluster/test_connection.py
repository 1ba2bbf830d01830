"""Which cluster is used, and what is said when there is none."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from headgate.placement.cluster import connection
from headgate.placement.cluster.connection import Connection, Found, connect_ray
from headgate.placement.cluster.tuning import TUNED, LocalCluster
from headgate.placement.errors import ClusterUnreachableError


@pytest.fixture
def unconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that Ray believes to be connected to nothing."""
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.mark.parametrize(
    ("address", "says"), [("ray://head:10001", "named by host:port"), ("head", "named by host:port")]
)
def test_an_address_in_another_form_is_refused(unconnected: None, address: str, says: str) -> None:
    with pytest.raises(ClusterUnreachableError, match=says):
        connect_ray(address)


def test_an_address_where_nothing_answers_is_told(unconnected: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused at once
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ClusterUnreachableError, match="Nothing answers"):
            connect_ray(address)
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(ClusterUnreachableError, match=address):
            connect_ray()


@pytest.mark.slow
def test_a_machine_that_is_no_node_of_the_cluster_is_told_and_not_waited_for(
    ray_cluster: Any, unconnected: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "find_node_ids", lambda: ["another"])
    monkeypatch.setattr(connection, "_NODE_S", 0.0)
    with pytest.raises(ClusterUnreachableError, match=r"none of its nodes runs on this machine.*`ray start --address="):
        connect_ray(ray_cluster.address)


def test_auto_starts_nothing(unconnected: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.placement.cluster.connection.find_bootstrap_address", lambda _: None)
    with pytest.raises(ClusterUnreachableError, match="No Ray cluster is found"):
        connect_ray("auto")


def test_another_version_is_told(unconnected: None, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    from headgate.placement.errors import ClusterMismatchError

    def refused(**_: object) -> None:
        raise RuntimeError("Version mismatch: The cluster was started with Ray: 2.1.0")

    monkeypatch.setattr(ray, "init", refused)
    with pytest.raises(ClusterMismatchError, match=r"2\.1\.0"):
        connect_ray("local")


def test_a_local_cluster_is_tuned() -> None:
    assert LocalCluster(cpus=3).as_init()["_system_config"] == dict(TUNED)
    assert "started for this process" in Connection("127.0.0.1:1", Found.STARTED).says


@pytest.mark.slow
def test_a_process_that_is_connected_stays_so(ray_cluster: object) -> None:
    assert connect_ray().found is Found.ATTACHED
