"""Traces given to `headgate bench`: which scenario reads them, and what stands in the artifact."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from headgate.cli.main import main
from headgate_bench.elastic.replaying import short_names
from tests.bench.tiny import EASY, TINY

TIMES = """model,hardware,prompt_size,batch_size,token_size,prompt_time,token_time,tensor_parallel
llama2-70b,h100-80gb,512,1,128,53,30,8
llama2-70b,h100-80gb,2048,1,128,136,30,8
llama2-70b,h100-80gb,512,8,128,371,32,8
"""


def trace(folder: Path) -> Path:
    rows = [f"2023-11-16 18:{17 + at // 60:02}:{at % 60:02}.5,{400 + at},{20 + at % 7}" for at in range(90)]
    path = folder / "azure_code.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows))
    return path


def times(folder: Path) -> Path:
    path = folder / "times.csv"
    path.write_text(TIMES)
    return path


@pytest.mark.long
def test_a_trace_has_bars_of_its_own_and_its_artifact_says_what_was_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    options = [
        option for change in (*TINY["elastic"], *EASY["elastic"], "trace_workers=0.5") for option in ("--set", change)
    ]
    read = ["--trace", str(trace(tmp_path)), "--service-times", str(times(tmp_path))]
    assert main(["bench", "elastic", "--json", "--output", str(tmp_path / "out"), *read, *options]) == 0
    printed = json.loads(capsys.readouterr().out)
    ids = {bar["id"] for bar in printed["bars"]}
    assert {"P8.code_cost_1s", "P8.code_wait_30s", "P8.ramp_cost_1s", "P8.lost"} <= ids
    artifact = json.loads(Path(printed["artifact"]).read_text())
    assert [one["name"] for one in artifact["inputs"]] == ["azure_code.csv", "times.csv"]
    assert artifact["inputs"][1]["sha256"] == hashlib.sha256(TIMES.encode()).hexdigest()
    assert any("copies of each request" in note for note in artifact["notes"])
    assert any("llama2-70b on 8 x h100-80gb" in note for note in artifact["notes"])
    page = next(Path(path) for path in printed["files"] if path.endswith(".html"))
    assert "azure_code" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["queue", "--trace", "{trace}"], "the benchmark 'queue' reads no traces"),
        (["--all", "--service-times", "{times}"], "the benchmark 'admission' reads no traces"),
        (["elastic", "--trace", "{trace}"], "--trace and --service-times belong together"),
        (["elastic", "--service-times", "{times}"], "--trace and --service-times belong together"),
        (["elastic", "--trace", "{times}", "--service-times", "{times}"], "lacks the columns TIMESTAMP"),
        (["elastic", "--trace", "missing.csv", "--service-times", "{times}"], "missing.csv cannot be read"),
    ],
)
def test_what_cannot_be_replayed_is_refused_and_nothing_is_left(
    arguments: list[str], said: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    places = {"trace": trace(tmp_path), "times": times(tmp_path)}
    output = tmp_path / "out"
    assert main(["bench", *(each.format(**places) for each in arguments), "--output", str(output)]) == 2
    assert said in re.sub(r"\s+", " ", capfd.readouterr().err)
    assert not output.exists() or list(output.iterdir()) == []


def test_bars_of_two_files_have_two_names() -> None:
    paths = [Path("Azure_Code.csv"), Path("b/code.csv"), Path("my trace.jsonl")]
    assert short_names(paths) == ["code", "code-2", "my_trace"]
