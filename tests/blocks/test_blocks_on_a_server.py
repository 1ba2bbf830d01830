"""Blocks saved to and loaded from a real Prefect server."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path

import httpx
import pytest

from blocks import BlockRoster, ModelEndpoint, ModelRoster, ReportStore, RosterEntry, SampleStore
from headgate.core import errors

KEY = "sk-a-key-that-nobody-may-see"


@pytest.fixture
def name() -> str:
    return f"b-{uuid.uuid4().hex[:8]}"


async def _endpoint(name: str, key: str = KEY, url: str = "http://127.0.0.1:1/v1") -> ModelEndpoint:
    await ModelEndpoint(base_url=url, api_key=key, max_parallel=3, options={"temperature": 0.2}).asave(
        name, overwrite=True
    )
    return await ModelEndpoint.aload(name)


def _masked(prefect: object, slug: str, name: str) -> str:
    url = f"{prefect.api_url}/block_types/slug/{slug}/block_documents/name/{name}"  # type: ignore[attr-defined]
    return httpx.get(url, trust_env=False).raise_for_status().text


def test_one_command_registers_every_block(prefect: object) -> None:
    command = [sys.executable, "-m", "prefect", "block", "register", "-m", "blocks"]
    done = subprocess.run(command, env=prefect.environ(), capture_output=True, text=True, timeout=60, check=False)  # type: ignore[attr-defined]
    assert done.returncode == 0, done.stdout + done.stderr
    servers = ("Admission Limits", "Job Queue Server", "Model Endpoint")
    for shown in (*servers, "Model Roster", "Ray Cluster", "Report Store", "Sample Store"):
        assert shown in done.stdout


async def test_a_roster_gives_its_models_with_what_their_endpoints_say(prefect: object, name: str) -> None:
    endpoint = await _endpoint(name)
    await ModelRoster(
        endpoint=endpoint,
        models=[
            RosterEntry(name="small"),
            RosterEntry(
                name="large", endpoint=name, served_name="vendor/large", weight=2.0, max_parallel=9, revision="7"
            ),
        ],
    ).asave(name)
    small, large = (await (await ModelRoster.aload(name)).source().load()).models
    assert (small.key, small.base_url, small.max_parallel, small.uid) == ("small@main", "http://127.0.0.1:1/v1", 3, 0)
    assert (large.key, large.request_name, large.weight, large.max_parallel, large.uid) == (
        "large@7",
        "vendor/large",
        2.0,
        9,
        1,
    )
    assert large.options == (("temperature", 0.2),)
    assert large.api_key.reveal() == KEY


async def test_a_key_that_is_changed_is_used_at_the_next_refresh(prefect: object, name: str) -> None:
    endpoint = await _endpoint(name)
    await ModelRoster(endpoint=endpoint, models=[RosterEntry(name="a"), RosterEntry(name="b", endpoint=name)]).asave(
        name
    )
    source = BlockRoster(name)
    await source.load()
    await _endpoint(name, key="sk-the-next-key")
    assert [model.api_key.reveal() for model in await source.load()] == ["sk-the-next-key"] * 2


async def test_the_api_masks_every_secret(prefect: object, name: str) -> None:
    endpoint = await _endpoint(name)
    await ModelRoster(endpoint=endpoint, models=[RosterEntry(name="a", endpoint=name)]).asave(name)
    await SampleStore(url="s3://bucket/x", access_key_id=KEY, secret_access_key=KEY).asave(name)
    await ReportStore(url="s3://bucket/x", access_key_id=KEY, secret_access_key=KEY).asave(name)
    for slug in ("model-endpoint", "model-roster", "sample-store", "report-store"):
        shown = _masked(prefect, f"headgate-{slug}", name)
        assert KEY not in shown, slug
        if slug != "model-roster":
            assert "****" in shown
    assert (await SampleStore.aload(name)).location().secret.reveal() == KEY  # type: ignore[union-attr]


async def test_models_of_a_file_come_before_those_of_the_block(prefect: object, name: str, tmp_path: Path) -> None:
    file = tmp_path / "roster.yaml"
    file.write_text("models: [{name: filed, base_url: 'http://127.0.0.1:2/v1', uid: 5}]")
    await ModelRoster(endpoint=await _endpoint(name), models=[RosterEntry(name="own")], location=str(file)).asave(name)
    assert [(m.name, m.uid) for m in await BlockRoster(name).load()] == [("filed", 5), ("own", 6)]


async def test_a_roster_that_does_not_exist_is_named(prefect: object) -> None:
    with pytest.raises(errors.InvalidRosterError, match="headgate-model-roster/nowhere"):
        await BlockRoster("nowhere").load()


async def test_an_entry_without_an_endpoint_is_refused_by_name() -> None:
    roster = ModelRoster(models=[RosterEntry(name="alone")])
    with pytest.raises(errors.InvalidRosterError, match="'alone' names no endpoint"):
        await roster.source().load()


async def test_an_endpoint_that_does_not_exist_is_named(prefect: object) -> None:
    roster = ModelRoster(models=[RosterEntry(name="a", endpoint="nowhere")])
    with pytest.raises(errors.InvalidRosterError, match="headgate-model-endpoint/nowhere"):
        await roster.source().load()


@pytest.mark.parametrize("url", ["ftp://host/v1", "host/v1", ""])
def test_an_endpoint_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="base_url"):
        ModelEndpoint(base_url=url)
