"""The demo on a cluster: its account, its curve, and that it leaves nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.models import is_local_model_installed
from tests.orchestration.test_demo import left_of

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(660)]


@pytest.mark.skipif(not is_local_model_installed(), reason="`make setup-model` installs the small model")
def test_checkpoints_become_a_curve_while_a_training_takes_the_gpu_and_no_sample_is_lost(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headgate.cli", "demo", "--cluster", "--folder", str(tmp_path)]
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "HEADGATE_", "RAY_"))}
    ended = subprocess.run(
        command, env=environ | {"DEMO_MARK": "cluster"}, capture_output=True, text=True, check=False, timeout=620
    )
    said = ended.stdout
    assert ended.returncode == 0, said + ended.stderr
    assert "30 samples due, 30 stored, 0 open, 0 lost, 0 stored twice: done" in said
    assert re.findall(r"policy@(step_\d+) is evaluated", said) == ["step_100", "step_200"]
    holders = re.findall(r"s  (policy@\S+|training)$", said, re.MULTILINE)
    assert holders == ["policy@step_100-1", "training", "policy@step_100-1", "policy@step_200-1"]
    page = (tmp_path / "cluster" / "curve.html").read_text("utf-8")
    assert all(name in page for name in ("policy@step_100", "policy@step_200"))
    assert left_of("cluster") == []
