"""Means of many groups at once are those of each group alone."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import polars as pl
import pytest

from headgate.reports.statistics import estimates_by
from headgate.statistics import clustered_mean


@pytest.mark.parametrize("seed", range(3))
def test_the_estimates_of_all_groups_are_those_of_each_alone(seed: int) -> None:
    random = np.random.default_rng(seed)
    kinds = {
        "binary": lambda n: random.integers(0, 2, n).astype(float),
        "ones": np.ones,
        "tenths": lambda n: np.full(n, 0.1),
        "any": random.random,
    }
    rows = []
    for name, make in kinds.items():
        for n in (1, 2, 3, 17, 60):
            for tasks in (1, 2, 9, 10_000):
                index = random.integers(0, tasks, n)
                rows += [(name, f"{n} of {tasks}", int(i), float(s)) for i, s in zip(index, make(n), strict=True)]
    frame = pl.DataFrame(rows, schema=["model", "environment", "index", "score"], orient="row")
    found = estimates_by(frame.sample(fraction=1, shuffle=True, seed=seed), "model", "environment")
    assert len(found) == frame.select("model", "environment").n_unique()
    for (model, environment), made in found.items():
        own = frame.filter(pl.col("model") == model, pl.col("environment") == environment)
        alone = clustered_mean(own["score"].to_numpy(), own["index"].to_numpy())
        assert alone is not None
        assert made.method == alone.method
        numbers, wanted = ([*list(astuple(one)[2:5]), one.design_effect] for one in (made, alone))
        assert numbers == pytest.approx(wanted, abs=1e-9), (model, environment)
