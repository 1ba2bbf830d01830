"""An engine for tests: serves the baseline that its weights, a text file, name; weights that name none do not load."""

from __future__ import annotations

import sys
from pathlib import Path

from headgate.models import FaultPlan, endpoint, run_baselines

port, weights = int(sys.argv[1]), Path(sys.argv[2]).read_text().strip()
if weights not in {"random", "greedy", "solver"}:
    sys.exit(f"these weights do not load: {weights!r}")
endpoint.baseline_of = lambda _: weights
run_baselines("127.0.0.1", port, FaultPlan.parse(""), announce=print)
