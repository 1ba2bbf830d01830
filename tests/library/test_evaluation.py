"""Evaluations from Python: what a notebook awaits."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import headgate
from headgate.models import TASK_HEADER_OPTION
from headgate.simulation import FreeEnvironment


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Journals and stores of a test lie in its own folder."""
    monkeypatch.chdir(tmp_path)


def _model(address: str, kind: str = "solver") -> headgate.Model:
    return headgate.Model(kind, base_url=address, served_name=f"baseline-{kind}", options=((TASK_HEADER_OPTION, True),))


async def test_models_are_scored_on_every_task_of_each_environment(baselines: str) -> None:
    models = [_model(baselines), _model(baselines, "random")]
    scores = await headgate.evaluate(models, ["affine:sat", "affine:ded"], instances=3, progress=False)
    assert scores.samples.height == 2 * 2 * 3
    assert scores.summary.columns == ["model", "environment", "samples", "scored", "mean_score", "low", "high"]
    assert scores.summary.filter(model="solver@main")["mean_score"].to_list() == [1.0, 1.0]
    assert scores.result is not None
    assert scores.result.stored == 12


async def test_the_same_call_again_samples_nothing_and_more_instances_only_what_is_new(baselines: str) -> None:
    for instances, sampled in ((2, 2), (2, 0), (3, 1)):
        scores = await headgate.evaluate(_model(baselines), "affine:sat", instances=instances, progress=False)
        assert scores.samples.height == instances
        assert scores.result is not None
        assert scores.result.samples == sampled


async def test_scores_show_themselves_as_text_and_as_html(baselines: str) -> None:
    scores = await headgate.evaluate(_model(baselines), "affine:sat", instances=2, progress=False)
    assert "solver@main" in repr(scores)
    assert "1.00 (2)" in repr(scores)
    assert scores._repr_html_().startswith("<pre>")
    assert "solver@main" in scores._repr_html_()


async def test_scores_of_a_model_that_does_not_answer_say_why_there_are_none(baselines: str) -> None:
    nobody = headgate.Model("nobody", base_url=baselines)
    scores = await headgate.evaluate(nobody, "affine:sat", instances=2, progress=False)
    assert "2 without a score: bad_request, such as HTTP 404" in repr(scores)


async def test_scores_of_another_store_say_that_the_journal_gives_no_task_again(baselines: str) -> None:
    await headgate.evaluate(_model(baselines), "affine:sat", instances=2, progress=False)
    scores = await headgate.evaluate(_model(baselines), "affine:sat", instances=2, progress=False, store="elsewhere")
    assert "not taken: 2 tasks that the journal" in repr(scores)


async def test_a_bar_says_how_many_samples_there_are(baselines: str, capfd: pytest.CaptureFixture[str]) -> None:
    await headgate.evaluate(_model(baselines), "affine:sat", instances=2)
    assert "2 of 2" in capfd.readouterr().err


async def test_models_may_be_a_mapping_or_a_roster(baselines: str, roster_file: Path) -> None:
    entry = {"base_url": baselines, "model": "baseline-solver", "options": {TASK_HEADER_OPTION: True}}
    mapped = await headgate.evaluate({"mapped": entry}, "affine:sat", instances=1, progress=False)
    assert mapped.samples["model"].to_list() == ["mapped@main"]
    listed = await headgate.evaluate(roster_file, "affine:sat", instances=1, progress=False)
    assert sorted(listed.samples["model"]) == ["random@main", "solver@main"]


async def test_an_environment_may_be_an_object_that_no_package_registers(baselines: str) -> None:
    mine = FreeEnvironment("mine:own")
    scores = await headgate.evaluate(_model(baselines), [mine], instances=2, progress=False)
    assert set(scores.samples["environment"]) == {"mine:own"}
    with pytest.raises(headgate.HeadgateError, match="mine:own"):
        await headgate.evaluate(_model(baselines), "mine:own", instances=1, progress=False)


async def test_sampling_goes_on_at_rates_until_its_time_is_over(baselines: str) -> None:
    scores = await headgate.keep_sampling(
        _model(baselines), "affine:sat", duration_s=1.5, progress=False, rates="*=200000"
    )
    assert scores.samples.height >= 1
    assert scores.result is not None
    assert scores.result.stopped_by == "the window is over"


async def test_ctrl_c_drains_and_gives_the_scores_so_far(baselines: str) -> None:
    before = signal.getsignal(signal.SIGINT)
    running = asyncio.create_task(
        headgate.keep_sampling(_model(baselines), "affine:sat", progress=False, rates="*=200000")
    )
    while signal.getsignal(signal.SIGINT) == before:  # noqa: ASYNC110 - nobody tells when a handler is set
        await asyncio.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
    scores = await running
    assert scores.result is not None
    assert scores.result.stopped_by == "stopped by request"
    assert scores.samples.height == scores.result.stored
    assert signal.getsignal(signal.SIGINT) == before


async def test_a_leaderboard_is_made_of_a_store_or_of_a_frame(baselines: str) -> None:
    models = [_model(baselines), _model(baselines, "random")]
    scores = await headgate.evaluate(models, "affine:sat", instances=2, store="elsewhere", progress=False)
    for samples in ("elsewhere", headgate.open_store("elsewhere"), scores.samples):
        board = (await headgate.leaderboard(samples, against="random")).leaderboard
        assert board.against == "random@main"


@pytest.mark.parametrize(
    ("models", "environments", "settings", "says"),
    [
        pytest.param("baselines", "affine:sta", {}, "affine:sat", id="environment"),
        pytest.param("baselines", "affine:sat", {"stroe": "x"}, "store", id="setting"),
        pytest.param([3], "affine:sat", {}, "headgate.Model", id="model"),
        pytest.param(3, "affine:sat", {}, "headgate.Model", id="number"),
        pytest.param("baselines", [], {}, "environments names none", id="nowhere"),
        pytest.param(
            "baselines", [3], {}, "an? int without spec, open, baseline. .* headgate.Environment", id="object"
        ),
        pytest.param("baselines", 3, {}, "an? int without spec, open, baseline", id="no list"),
        pytest.param("baselines", [FreeEnvironment], {}, r"Write FreeEnvironment\(\)", id="class"),
        pytest.param({"m": {"base_ulr": "x"}}, "affine:sat", {}, "base_url", id="entry"),
        pytest.param([], "affine:sat", {}, "at least one model", id="nobody"),
        pytest.param("missing.yaml", "affine:sat", {}, "missing.yaml", id="roster"),
    ],
)
async def test_what_cannot_be_used_is_refused_with_what_is_right(
    models: object, environments: object, settings: dict[str, str], says: str
) -> None:
    with pytest.raises(headgate.HeadgateError, match=says):
        await headgate.evaluate(models, environments, instances=1, progress=False, **settings)  # type: ignore[arg-type]


def test_the_library_shows_its_names_and_loads_nothing_before_one_is_asked_for() -> None:
    code = "import sys, headgate; print(len(dir(headgate)), *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    count, *modules = done.stdout.split()
    assert 15 <= int(count) <= 30
    assert not {"polars", "pydantic", "headgate.core", "headgate.evaluation"} & set(modules)
    assert all(getattr(headgate, name) is not None for name in dir(headgate))
