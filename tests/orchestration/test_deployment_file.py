"""`prefect.yaml`, read strictly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from headgate.core import errors
from headgate.orchestration import checked_deployments
from headgate.orchestration.deployment_file import read_deployment_file
from tests.house.tree import ROOT

GOOD: dict[str, Any] = {
    "name": "sat",
    "entrypoint": "flows.sampling.sample_environment",
    "work_pool": {"name": "headgate"},
    "parameters": {"environment": "affine:sat"},
    "schedules": [{"slug": "windows", "interval": 600}],
}


def _file(folder: Path, **changes: Any) -> Path:
    path = folder / "prefect.yaml"
    path.write_text(yaml.safe_dump({"deployments": [GOOD | changes]}))
    return path


def test_a_good_file_names_its_deployments(tmp_path: Path) -> None:
    assert checked_deployments(_file(tmp_path)) == ("sample-environment/sat",)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"concurency_limit": 1}, r"no setting deployments\[0\]\.concurency_limit; did you mean 'concurrency_limit'"),
        ({"schedules": [{"slug": "a", "intervall": 600}]}, "intervall; did you mean 'interval'"),
        ({"schedules": [{"interval": 600}]}, "slug is missing"),
        (
            {"schedules": [{"slug": "a", "interval": 600, "cron": "* * * * *"}]},
            "exactly one of cron, interval and rrule",
        ),
        ({"schedules": [{"slug": "a"}]}, "got none"),
        ({"work_pool": {"name": "x", "work_queue": "y"}}, "work_queue; did you mean 'work_queue_name'"),
        ({"concurrency_limit": {"limit": 0}}, "greater than or equal to 1"),
        ({"concurrency_limit": {"limit": 1, "collision_strategy": "DROP"}}, "ENQUEUE"),
        ({"parameters": {"enviroment": "x"}}, "no parameter 'enviroment'; did you mean 'environment'"),
        ({"parameters": {}}, "gives no value for environment"),
        ({"parameters": {"environment": "x", "duration_s": -1}}, r"duration_s must be greater than 0 \(got -1\)"),
        ({"parameters": {"environment": "x", "workers": "many"}}, "workers"),
        ({"entrypoint": "flows.sampling.sample_enviroment"}, "no flow 'flows.sampling.sample_enviroment'"),
    ],
)
def test_a_typing_error_is_named_with_its_place(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(errors.InvalidInputError, match=said):
        checked_deployments(_file(tmp_path, **changes))


def test_a_name_that_stands_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "prefect.yaml"
    path.write_text(yaml.safe_dump({"deployments": [GOOD, GOOD]}))
    with pytest.raises(errors.InvalidInputError, match="more than one deployment is named 'sat'"):
        read_deployment_file(path)


def test_flows_of_others_are_taken_as_they_are(tmp_path: Path) -> None:
    path = _file(tmp_path, entrypoint="other/file.py:run", flow_name="run", parameters={"any": 1})
    assert checked_deployments(path) == ("run/sat",)


def test_a_file_that_is_none_is_an_error_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "prefect.yaml").write_text("deployments: [")
    with pytest.raises(errors.InvalidInputError, match="cannot be read"):
        read_deployment_file(tmp_path / "prefect.yaml")
    with pytest.raises(errors.InvalidInputError, match="cannot be read"):
        read_deployment_file(tmp_path / "absent.yaml")


def test_a_file_written_again_says_the_same(tmp_path: Path) -> None:
    once = read_deployment_file(ROOT / "prefect.yaml")
    (tmp_path / "prefect.yaml").write_text(once.as_yaml())
    assert read_deployment_file(tmp_path / "prefect.yaml") == once.model_copy(update={"definitions": {}})
