"""What `deployments/` holds is whole, and names only what there is."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from prefect.settings import Settings as PrefectSettings

from headgate.config import load_settings
from headgate.orchestration.deployments import POOL
from headgate.sampling import BASELINE_ROSTER, FileRoster
from tests.house.tree import ROOT

FOLDER = ROOT / "deployments"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
MANIFESTS: list[dict[str, Any]] = [
    document
    for path in sorted((FOLDER / "kubernetes").glob("*.yaml"))
    if path.name != "kustomization.yaml"
    for document in yaml.safe_load_all(path.read_text())
]


def _prefect_variables() -> set[str]:
    """Return every variable that Prefect reads a setting from."""

    def of(model: Any) -> set[str]:
        found: set[str] = set()
        prefix = model.model_config.get("env_prefix", "")
        for name, field in model.model_fields.items():
            inner = field.annotation if isinstance(field.annotation, type) else None
            if inner is not None and hasattr(inner, "model_fields"):
                found |= of(inner)
            alias = field.validation_alias
            choices = getattr(alias, "choices", [alias] if isinstance(alias, str) else [])
            found |= {str(choice).upper() for choice in choices} | {f"{prefix}{name}".upper()}
        return found

    return of(PrefectSettings)


def _variables() -> set[str]:
    in_compose = {name for service in COMPOSE["services"].values() for name in service.get("environment", {})}
    containers = [c for m in MANIFESTS if "spec" in m for c in _containers(m)]
    in_example = re.findall(r"^#? ?([A-Z][A-Z0-9_]+)=", (FOLDER / "compose.env.example").read_text(), re.MULTILINE)
    return in_compose | {entry["name"] for c in containers for entry in c.get("env", [])} | set(in_example)


def _containers(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    return manifest["spec"].get("template", {}).get("spec", {}).get("containers", [])


def _named(kind: str) -> dict[str, dict[str, Any]]:
    return {m["metadata"]["name"]: m for m in MANIFESTS if m["kind"] == kind}


def _scripts() -> list[str]:
    """Return the shell scripts that deploy."""
    commands = COMPOSE["services"]["deploy"]["command"], _containers(_named("Job")["deploy"])[0]["command"]
    return [command[-1] for command in commands]


def test_every_prefect_variable_is_one_that_prefect_reads() -> None:
    ours = {name for name in _variables() if name.startswith("PREFECT_")} - {"PREFECT_AUTH"}
    assert ours
    assert ours - _prefect_variables() == set()


def test_every_headgate_variable_is_a_setting() -> None:
    names = {name for name in _variables() if name.startswith("HEADGATE_")}
    samples = {"HEADGATE_JOURNAL": "j", "HEADGATE_STORE": "s", "HEADGATE_JOBQUEUE_URL": "http://q"}
    samples |= {"HEADGATE_ENABLE_MONITORING": "true", "HEADGATE_S3_ENDPOINT_URL": "http://s3"}
    load_settings(environ={name: samples.get(name, "x") for name in names})


@pytest.mark.parametrize("path", sorted((FOLDER / "campaigns").glob("*.yaml")), ids=lambda path: path.name)
async def test_every_example_campaign_can_be_loaded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if path.name == "roster.yaml":
        roster = await FileRoster(path, environ={"EXAMPLE_KEY": "k"}).load()
        assert [model.name for model in roster] == ["small", "large", "home"]
        return
    settings = load_settings(environ={}, file=path).settings
    if settings.roster and settings.roster != BASELINE_ROSTER:
        assert (ROOT / settings.roster).exists()


def test_windows_drain_before_a_container_is_killed() -> None:
    keeper_s = float(COMPOSE["services"]["worker"]["command"][3])
    assert COMPOSE["services"]["worker"]["command"][:3] == ["python", "-m", "headgate.processes.keeper"]
    assert keeper_s < float(COMPOSE["services"]["worker"]["stop_grace_period"].removesuffix("s"))
    pod = _named("Deployment")["worker"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["command"] == COMPOSE["services"]["worker"]["command"]
    assert keeper_s < pod["terminationGracePeriodSeconds"]


def test_worker_and_deploy_use_the_pool_of_prefect_yaml() -> None:
    assert COMPOSE["services"]["worker"]["command"][-3:] == [POOL, "--type", "process"]
    for script in (
        COMPOSE["services"]["deploy"]["command"][-1],
        _containers(_named("Job")["deploy"])[0]["command"][-1],
    ):
        assert f"prefect work-pool create {POOL} --type process --overwrite" in script


def test_flow_runs_work_where_they_are_deployed_from() -> None:
    services = COMPOSE["services"]
    assert services["deploy"]["working_dir"] == services["worker"]["working_dir"]
    folders = {_containers(m)[0]["workingDir"] for m in (_named("Job")["deploy"], _named("Deployment")["worker"])}
    assert folders == {services["worker"]["working_dir"]}


def test_every_selector_finds_its_pods_and_every_volume_its_claim() -> None:
    workloads = [m for m in MANIFESTS if m["kind"] in {"Deployment", "StatefulSet"}]
    labels = [m["spec"]["template"]["metadata"]["labels"] for m in workloads]
    for workload, of_pods in zip(workloads, labels, strict=True):
        assert workload["spec"]["selector"]["matchLabels"] == of_pods
    for service in _named("Service").values():
        assert service["spec"]["selector"] in labels
    claims = set(_named("PersistentVolumeClaim"))
    for workload in workloads:
        pod = workload["spec"]["template"]["spec"]
        used = {v["persistentVolumeClaim"]["claimName"] for v in pod.get("volumes", [])}
        assert used <= claims
        mounted = {m["name"] for c in pod["containers"] for m in c.get("volumeMounts", [])}
        templates = {t["metadata"]["name"] for t in workload["spec"].get("volumeClaimTemplates", [])}
        assert mounted == {v["name"] for v in pod.get("volumes", [])} | templates


def test_the_console_looks_into_the_journal_of_the_worker_and_cannot_write_it() -> None:
    worker, console = COMPOSE["services"]["worker"], COMPOSE["services"]["console"]
    assert console["environment"]["HEADGATE_JOURNAL"] == worker["environment"]["HEADGATE_JOURNAL"]
    assert console["volumes"] == [f"{volume}:ro" for volume in worker["volumes"]]
    in_pod = {one["name"]: one for one in _containers(_named("Deployment")["worker"])}
    journals = {e["value"] for one in in_pod.values() for e in one["env"] if e["name"] == "HEADGATE_JOURNAL"}
    assert len(journals) == 1
    mounts = [{**mount, "readOnly": True} for mount in in_pod["worker"]["volumeMounts"]]
    assert in_pod["console"]["volumeMounts"] == mounts
    assert not any("--run" in part for part in (*console["command"], *in_pod["console"]["command"]))


def test_the_kustomization_lists_every_manifest() -> None:
    listed = yaml.safe_load((FOLDER / "kubernetes/kustomization.yaml").read_text())["resources"]
    assert sorted([*listed, "kustomization.yaml"]) == sorted(p.name for p in (FOLDER / "kubernetes").glob("*.yaml"))


def test_compose_volumes_and_dependencies_exist() -> None:
    for service in COMPOSE["services"].values():
        assert {volume.split(":")[0] for volume in service.get("volumes", [])} <= set(COMPOSE["volumes"])
        assert set(service.get("depends_on", {})) <= set(COMPOSE["services"])


def test_what_the_image_copies_is_there() -> None:
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", (FOLDER / "Dockerfile").read_text(), re.MULTILINE)
    for name in " ".join(copied).split():
        assert (ROOT / name).exists(), name


def test_flow_runs_of_the_docker_pool_reach_the_server_of_the_compose_file() -> None:
    variables = json.loads((FOLDER / "pools/docker.json").read_text())["variables"]["properties"]
    assert variables["networks"]["default"] == [f"{COMPOSE['name']}_default"]
    address = urlsplit(variables["env"]["default"]["PREFECT_API_URL"])
    assert address.hostname == "server"
    assert any(port.endswith(f":{address.port}") for port in COMPOSE["services"]["server"]["ports"])


def test_no_layer_of_the_image_depends_on_a_mount_that_podman_does_not_compare() -> None:
    text = (FOLDER / "Dockerfile").read_text()
    assert re.findall(r"--mount=\S*\bfrom=", re.sub(r"^#.*$", "", text, flags=re.MULTILINE)) == []
    stages = set(re.findall(r"^FROM .* AS (\S+)$", text, re.MULTILINE))
    assert set(re.findall(r"^COPY --from=(\S+) ", text, re.MULTILINE)) == stages


def test_one_service_builds_the_image_that_the_others_run() -> None:
    services = {name: one for name, one in COMPOSE["services"].items() if name != "database"}
    assert [name for name, one in services.items() if "build" in one] == ["deploy"]
    assert {one["image"] for one in services.values()} == {"headgate:local"}
    assert {one.get("pull_policy") for name, one in services.items() if name != "deploy"} == {"never"}


def test_every_base_image_can_be_named_by_who_builds() -> None:
    build = COMPOSE["services"]["deploy"]["build"]["args"]
    for name in ("Dockerfile", "debian/Dockerfile"):
        text = (ROOT / "deployments" / name).read_text()
        arguments = set(re.findall(r"^ARG (\w+)=", text, re.MULTILINE))
        stages = set(re.findall(r"^FROM .* AS (\S+)$", text, re.MULTILINE))
        bases = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
        assert {base for base in bases if base.strip("${}") not in arguments} <= stages
        if name == "Dockerfile":
            assert set(build) == arguments
    script = (ROOT / "scripts" / "debian-images.sh").read_text()
    (targets,) = re.findall(r"^for target in (.*); do$", script, re.MULTILINE)
    assert set(targets.split()) == stages


def test_the_dashboard_asks_for_metrics_and_labels_that_there_are() -> None:
    page = (ROOT / "docs/reference/monitoring.md").read_text()
    documented = set(re.findall(r"^#### `(headgate_\w+)`", page, re.MULTILINE))
    dashboard = json.loads((FOLDER / "grafana/headgate.json").read_text())
    asked = {name for panel in dashboard["panels"] for t in panel.get("targets", []) for name in _metrics(t["expr"])}
    assert asked
    assert asked - documented == set()
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            for label in re.findall(r"by \(([a-z, ]+)\)", target["expr"]):
                for one in set(label.split(", ")) - {"le"}:
                    (metric, *_) = _metrics(target["expr"])
                    section = page.split(f"#### `{metric}`")[1].split("####")[0]
                    assert f"`{one}`" in section, (metric, one)


def _metrics(expression: str) -> list[str]:
    return [name.removesuffix("_bucket") for name in re.findall(r"headgate_\w+", expression)]


def test_no_panel_lies_on_another() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in json.loads((FOLDER / "grafana/headgate.json").read_text())["panels"]:
        place = panel["gridPos"]
        mine = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert not cells & mine, panel["title"]
        assert place["x"] + place["w"] <= 24
        cells |= mine


def test_the_scripts_of_the_jobs_are_shell() -> None:
    for script in (
        COMPOSE["services"]["deploy"]["command"][-1],
        _containers(_named("Job")["deploy"])[0]["command"][-1],
    ):
        assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0


@pytest.mark.parametrize("name", ["server", "deploy", "worker", "jobqueue", "console"])
def test_compose_and_kubernetes_start_the_same_commands(name: str) -> None:
    def steps(command: list[str]) -> list[str]:
        script = command[-1].replace("$$", "$").splitlines()
        return [*command[:-1], *(line.strip() for line in script if not line.strip().startswith("#"))]

    (found,) = (c for m in MANIFESTS if "spec" in m for c in _containers(m) if c["name"] == name)
    service = COMPOSE["services"][name]
    assert steps(found["command"]) == steps(service["command"])
    given = {entry["name"] for entry in found.get("env", ())}
    prefect = {variable for variable in service.get("environment", {}) if variable.startswith("PREFECT_")}
    assert {variable for variable in given if variable.startswith("PREFECT_")} == prefect
