"""`headgate elastic serve` where workers stand on places of a Ray cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.placement import connect
from tests.cli.conftest import Command
from tests.own_ray import own_ray

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # the first test of a file starts Ray

ENGINE = {"kind": "ray", "class": "tests.orchestration.elastic_rollout:Rollout", "count": 2, "slots": 4}


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    from headgate.placement.cluster.tuning import TUNED

    with own_ray(2, num_gpus=0, namespace="headgate", _system_config=dict(TUNED)), connect() as placement:
        yield
        placement.shutdown()


def _file(folder: Path, **engine: object) -> str:
    path = folder / "pool.yaml"
    written = {"pool": {"engines": [{**ENGINE, **engine}]}, "placement": {"pool": "rollouts"}}
    path.write_text(json.dumps(written))
    return str(path)


def test_actors_of_a_file_are_looked_at_without_being_started(cluster: None, headgate: Command, tmp_path: Path) -> None:
    document = headgate("elastic", "serve", _file(tmp_path), "--check", "--json").document
    assert [each["engine"] for each in document["engines"]] == ["Rollout-1", "Rollout-2"]
    assert all(each["kind"] == "ray" and each["facts"]["is_asleep"] for each in document["engines"])


@pytest.mark.parametrize(
    ("engine", "says"),
    [
        ({"class": "nowhere:Rollout"}, "nowhere:Rollout"),
        ({"clas": 1}, "there is no setting clas"),
        ({"resources": {"cpu": 64}}, "a worker takes"),
    ],
    ids=["class", "misspelt", "too large"],
)
def test_actors_that_could_never_run_are_refused(
    cluster: None, headgate: Command, tmp_path: Path, engine: dict[str, object], says: str
) -> None:
    said = headgate("elastic", "serve", _file(tmp_path, **engine), "--check")
    assert said.status == 2
    assert says in " ".join(said.err.split())


def test_actors_that_run_are_found_by_their_names(cluster: None, headgate: Command) -> None:
    import ray

    from tests.orchestration.elastic_rollout import Rollout

    actors = [
        ray.remote(Rollout).options(name="engine", namespace=namespace, num_cpus=0).remote()
        for namespace in ("one", "two")
    ]
    try:
        ray.get([actor.load.remote() for actor in actors])
        said = headgate("elastic", "check", "ray://one/engine", "ray://engine", "ray://nobody")
    finally:
        for actor in actors:
            ray.kill(actor)
    assert said.status == 4
    text = " ".join(said.out.split())
    assert "1 of 3 engines can be workers" in text
    assert "(got one/engine; two/engine)" in text
    assert "(got no actor of that name)" in text
