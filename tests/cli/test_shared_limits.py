"""`headgate run` and `headgate judge` with `--limits`: slots from a real Prefect server without a flow."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import orjson
import pytest

from tests.cli.conftest import Command
from tests.orchestration.slot_site import limit_now


def _written(tmp_path: Path, endpoint: str, agent: str) -> str:
    """Write a roster of one model and limits of two slots; return the limit's name."""
    name = f"l-{uuid.uuid4().hex[:8]}"
    entry = f"{{name: one, base_url: '{endpoint}', model: baseline-{agent}, options: {{headgate_task_header: true}}}}"
    (tmp_path / "roster.yaml").write_text(f"models:\n  - {entry}\n")
    (tmp_path / "limits.yaml").write_text(f"limits:\n- {{endpoint: '{endpoint}', slots: 2, limit: {name}}}\n")
    return name


def _caps(tmp_path: Path) -> set[int]:
    told = [orjson.loads(line) for line in (tmp_path / "events.jsonl").read_bytes().splitlines()]
    return {event["fields"]["after"] for event in told if event["event"] == "provider_slots_changed"}


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "judge"])
def test_a_command_takes_its_slots_from_a_shared_limit_and_gives_them_back(
    prefect: object, headgate: Command, tmp_path: Path, endpoint: str, command: str
) -> None:
    name = _written(tmp_path, endpoint, "solver")
    chosen = ["-e", "affine:sat-hard"] if command == "run" else ["--judge-model", "baseline-judge"]
    chosen += ["--judge-url", endpoint] if command == "judge" else []
    shared = ["--roster", "roster.yaml", "--instances", "4", "--set", "events_file=events.jsonl", "--json"]
    said = headgate(command, "--limits", "limits.yaml", *shared, *chosen)
    assert said.status == 0, said.err
    assert said.document["stored"] == said.document["samples"] >= 4
    assert _caps(tmp_path) == {0, 2}
    seen = asyncio.run(limit_now(name))
    assert seen is not None
    assert (seen.limit, seen.active_slots) == (2, 0)


@pytest.mark.parametrize("command", [("run",), ("judge", "--judge-model", "j", "--judge-url", "http://127.0.0.1:9/v1")])
def test_limits_without_a_prefect_api_are_refused_before_anything_starts(
    headgate: Command, tmp_path: Path, endpoint: str, command: tuple[str, ...]
) -> None:
    _written(tmp_path, endpoint, "solver")
    said = headgate(*command, "--roster", "roster.yaml", "--limits", "limits.yaml")
    assert said.status == 3
    assert "PREFECT_API_URL" in said.err
    assert not (tmp_path / ".headgate").exists()


def test_a_file_of_limits_that_is_not_there_is_named_before_prefect_is_asked_for(
    headgate: Command, roster: Path
) -> None:
    said = headgate("run", "--roster", str(roster), "-e", "affine:sat", "--instances", "1", "--limits", "none.yaml")
    assert said.status == 2
    assert "none.yaml cannot be read: No such file or directory" in said.err
