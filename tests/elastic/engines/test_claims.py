"""An engine belongs to one pool."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.elastic.engines import claim
from headgate.elastic.errors import WorkerClaimedError


def test_a_second_pool_is_told_who_has_the_engine(tmp_path: Path) -> None:
    claim("http://gpu-1:30000", "chat")

    with pytest.raises(WorkerClaimedError, match=r"http://gpu-1:30000 already belongs to pool 'chat' of process \d+"):
        claim("http://gpu-1:30000", "code")


def test_what_was_given_up_may_be_claimed(tmp_path: Path) -> None:
    first = claim("http://gpu-1:30000", "chat")
    first.give_back()
    first.give_back()

    claim("http://gpu-1:30000", "code")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://localhost:30000", "http://127.0.0.1:30000/"),
        ("http://GPU-1", "http://gpu-1:80"),
        ("https://gpu-1/one/", "https://gpu-1:443/one"),
        ("http://[::1]:8000", "http://localhost:8000"),
        ("ray://rollout", "ray://rollout"),
    ],
)
def test_spellings_of_an_address_are_one_engine(tmp_path: Path, one: str, other: str) -> None:
    claim(one, "chat")

    with pytest.raises(WorkerClaimedError):
        claim(other, "code")


def test_other_engines_are_free(tmp_path: Path) -> None:
    claim("http://gpu-1:30000", "chat")
    claim("http://gpu-1:30001", "code")
    claim("http://gpu-2:30000", "code")
    claim("http://gpu-1:30000/two", "code")
    claim("ray://rollout", "code")


@pytest.mark.slow
def test_a_claim_ends_with_its_process(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from headgate.elastic.engines import claim\n"
        "held = claim('http://gpu-1:30000', 'chat')\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(WorkerClaimedError, match=f"of process {holder.pid}"):
            claim("http://gpu-1:30000", "code")
        holder.kill()
        holder.wait()

    claim("http://gpu-1:30000", "code")
