"""The manifests for KubeRay and Kueue are what their operators take, and fit together."""

from __future__ import annotations

import json
import shlex
from typing import Any

import jsonschema
import pytest
import yaml

from headgate.cli import build_app
from headgate.placement.errors import InvalidPlacementError
from tests.house.tree import ROOT

FOLDER = ROOT / "deployments/kubernetes/placement"
SCHEMAS: dict[str, Any] = {
    kind: schema
    for file in ("kuberay.json", "kueue.json")
    for kind, schema in json.loads((ROOT / "tests/placement/schemas" / file).read_text())["kinds"].items()
}
NO_OBJECTS = {"kustomization.yaml", "pools.yaml"}
OBJECTS: list[dict[str, Any]] = [
    document
    for path in sorted(FOLDER.glob("*.yaml"))
    if path.name not in NO_OBJECTS
    for document in yaml.safe_load_all(path.read_text())
]
CLUSTERS = [o["spec"] for o in OBJECTS if o["kind"] == "RayCluster"]
CLUSTERS += [o["spec"]["rayClusterSpec"] for o in OBJECTS if "rayClusterSpec" in o.get("spec", {})]


def _name(one: dict[str, Any]) -> str:
    metadata = one["metadata"]
    return f"{one['kind']}/{metadata.get('name', metadata.get('generateName'))}"


def _of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {o["metadata"]["name"]: o for o in OBJECTS if o["kind"] == kind and "name" in o["metadata"]}


def _groups(cluster: dict[str, Any]) -> list[dict[str, Any]]:
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


@pytest.mark.parametrize("one", [o for o in OBJECTS if o["kind"] in SCHEMAS], ids=_name)
def test_an_object_is_what_its_operator_takes(one: dict[str, Any]) -> None:
    jsonschema.validate(one, SCHEMAS[one["kind"]])


def test_every_kind_of_an_operator_has_its_schema() -> None:
    assert {o["kind"] for o in OBJECTS} - set(SCHEMAS) == {"PersistentVolumeClaim"}


def test_a_misspelt_field_and_a_wrong_type_are_found() -> None:
    (cluster,) = [o for o in OBJECTS if o["kind"] == "RayCluster"]
    for wrong in ({"headGroupSpecs": {}}, {"suspend": "yes"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**cluster, "spec": {**cluster["spec"], **wrong}}, SCHEMAS["RayCluster"])


def test_queues_flavours_and_priorities_that_are_named_exist() -> None:
    for one in OBJECTS:
        labels = one["metadata"].get("labels", {})
        if labels:
            assert labels["kueue.x-k8s.io/queue-name"] in _of_kind("LocalQueue")
            assert labels["kueue.x-k8s.io/priority-class"] in _of_kind("WorkloadPriorityClass")
    for queue in _of_kind("LocalQueue").values():
        assert queue["spec"]["clusterQueue"] in _of_kind("ClusterQueue")
    for queue in _of_kind("ClusterQueue").values():
        for group in queue["spec"]["resourceGroups"]:
            assert {flavour["name"] for flavour in group["flavors"]} <= set(_of_kind("ResourceFlavor"))
            for flavour in group["flavors"]:
                assert [r["name"] for r in flavour["resources"]] == group["coveredResources"]


def test_a_job_uses_a_cluster_that_there_is_and_kueue_does_not_manage_it() -> None:
    for one in OBJECTS:
        selector = one.get("spec", {}).get("clusterSelector")
        if one["kind"] == "RayJob" and selector:
            assert selector["ray.io/cluster"] in _of_kind("RayCluster")
            assert "labels" not in one["metadata"]
            assert not one["spec"].get("shutdownAfterJobFinishes")


def test_a_job_that_kueue_starts_ends_its_cluster() -> None:
    own = [o for o in OBJECTS if o["kind"] == "RayJob" and "rayClusterSpec" in o["spec"]]
    assert own
    assert all(o["spec"]["shutdownAfterJobFinishes"] for o in own)


def test_the_ray_of_the_manifests_is_the_ray_of_the_lock_file() -> None:
    import ray

    assert {cluster["rayVersion"] for cluster in CLUSTERS} == {ray.__version__}


def test_volumes_claims_and_maps_that_are_mounted_exist() -> None:
    maps = {m["name"] for m in yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["configMapGenerator"]}
    for cluster in CLUSTERS:
        for group in _groups(cluster):
            pod = group["template"]["spec"]
            volumes = {v["name"]: v for v in pod.get("volumes", [])}
            assert {m["name"] for c in pod["containers"] for m in c.get("volumeMounts", [])} == set(volumes)
            for volume in volumes.values():
                if "persistentVolumeClaim" in volume:
                    assert volume["persistentVolumeClaim"]["claimName"] in _of_kind("PersistentVolumeClaim")
                else:
                    assert volume["configMap"]["name"] in maps


def test_the_state_of_ray_and_of_the_ledger_lies_on_the_disk_of_the_head() -> None:
    (standing,) = [o["spec"] for o in OBJECTS if o["kind"] == "RayCluster"]
    (head,) = standing["headGroupSpec"]["template"]["spec"]["containers"]
    (disk,) = [m["mountPath"] for m in head["volumeMounts"] if m["name"] == "head"]
    variables = {entry["name"]: entry["value"] for entry in head["env"]}
    assert variables["RAY_gcs_storage"] == "rocksdb"
    assert variables["RAY_gcs_storage_path"].startswith(f"{disk}/")
    assert f"--journal {disk}/" in _of_kind("RayJob")["placement-up"]["spec"]["entrypoint"]


def test_every_ray_process_has_the_tuned_settings_that_concern_it() -> None:
    from headgate.placement.cluster.tuning import TUNED

    wanted = {name: value for name, value in TUNED.items() if name.startswith(("gcs_create", "raylet_report"))}
    assert wanted
    for cluster in CLUSTERS:
        for group in _groups(cluster):
            (container,) = group["template"]["spec"]["containers"]
            variables = {entry["name"].removeprefix("RAY_"): entry["value"] for entry in container["env"]}
            is_head = group is cluster["headGroupSpec"]
            for name, value in wanted.items():
                if is_head or name.startswith("raylet_"):
                    assert variables[name] == str(value)


def test_the_kustomization_lists_every_object_that_stands() -> None:
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    there = {path.name for path in FOLDER.glob("*.yaml")} - NO_OBJECTS - {"training.yaml"}
    assert set(listed) == there


@pytest.mark.parametrize("one", [o for o in OBJECTS if o["kind"] == "RayJob"], ids=_name)
def test_entrypoints_are_commands_that_there_are(one: dict[str, Any]) -> None:
    for command in one["spec"]["entrypoint"].split("&&"):
        words = shlex.split(command)
        assert words[0] == "headgate"
        build_app().parse_args(words[1:], exit_on_error=False, print_error=False)


def test_the_pools_of_the_manifests_can_be_opened() -> None:
    from headgate.cli.placement.admin import read_placement_file

    pools = read_placement_file(FOLDER / "pools.yaml").pools
    assert [pool.name for pool in pools] == ["rlhf"]
    with pytest.raises(InvalidPlacementError):
        read_placement_file(FOLDER / "kustomization.yaml")
