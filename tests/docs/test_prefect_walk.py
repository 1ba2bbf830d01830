"""The commands of the how-to for Prefect end with a schedule that has sampled and a page of it."""

from __future__ import annotations

import json
import shlex
from typing import Final

import pytest

from tests.docs.terminal import Terminal, terminal
from tests.docs.walks import follow, walks

API: Final = "http://127.0.0.1:4200/api"
PAGE: Final = "http://127.0.0.1:4200/runs/flow-run"

SCHEDULED_RUN: Final = f"""
import json, time, urllib.request
asked = urllib.request.Request("{API}/flow_runs/filter", headers={{"Content-Type": "application/json"}},
    data=b'{{"flow_runs": {{"state": {{"type": {{"any_": ["COMPLETED", "FAILED", "CRASHED"]}}}}}}}}')
while not (ended := [run for run in json.load(urllib.request.urlopen(asked)) if run["auto_scheduled"]]):
    time.sleep(0.5)
print(json.dumps(ended[0]))
"""
"""Prints the first run that ended and that the schedule began, not a hand."""

WALK: Final = next(walk for walk in walks() if walk.name == "docs/how-to/prefect.md: Sample on a schedule")


def _posted(typed: Terminal, path: str, body: object) -> object:
    data = shlex.quote(json.dumps(body))
    return json.loads(typed.run(f"curl -sSf -H 'Content-Type: application/json' -d {data} {API}{path}"))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_scheduled_window_samples_and_the_page_shows_it() -> None:
    with terminal() as typed:
        follow(WALK, typed)
        run = json.loads(typed.run(f"python -c {shlex.quote(SCHEDULED_RUN)}"))
        assert run["state_type"] == "COMPLETED", run["state"]
        artifacts = _posted(typed, "/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [run["id"]]}}})
        assert "baseline-solver" in json.dumps(artifacts), "its table is in the UI"
        assert "<html" in typed.run(f"curl -sSf -H 'Accept: text/html' {PAGE}/{run['id']}")
        assert "baseline-solver" in typed.run("headgate summary")
        typed.run("prefect server stop")  # the worker drains its window, and ends with the terminal
