"""A folder to generate from, and the commands that do."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headgate.cli import main
from tests.jobqueue.generator.site import Site, server


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """One team with one task of two instances and one server; tests add to it or replace it."""
    site = Site(tmp_path)
    site.submit("standard.alpha.json", "Alpha", 0.5, radio=0.5)
    site.add_instances("radio", 1, 2)
    site.serve(alpha=[server("alpha-1")])
    return site


@dataclass
class Said:
    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Said]


@pytest.fixture
def jobqueue(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, site: Site) -> Iterator[Command]:
    """Run `headgate jobqueue` with these arguments where the files are."""
    monkeypatch.chdir(site.root)
    for name in ("HEADGATE_JOBQUEUE_URL", "JOB_QUEUE_URL", "HEADGATE_JOBQUEUE_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> Said:
        capsys.readouterr()
        status = main(("jobqueue", *arguments))
        said = capsys.readouterr()
        return Said(status, said.out, said.err)

    yield run
    logging.getLogger("headgate").handlers.clear()
