"""`headgate leaderboard` over a store that other commands filled."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path

import pytest
from rich.console import Console

from headgate.cli import output
from headgate.cli.options import moment_of
from headgate.core import Sample, errors
from headgate.storage import open_store
from tests.cli.conftest import Command
from tests.storage.samples import START, sample

NOW = START


def _sample(model: str, index: int, score: float, *, environment: str, campaign: str, at: float) -> Sample:
    where = {"model": f"{model}@main", "environment": environment, "campaign": campaign, "at": at}
    return sample(index, index=index, score=score, success=score == 1.0, **where)


@pytest.fixture
async def store(tmp_path: Path) -> None:
    """Two models, two environments, twenty tasks twice each; the second pass a day later."""
    rows = [
        _sample(model, index, float(index % 10 < skill), environment=environment, campaign=campaign, at=at + index)
        for campaign, at in (("first", NOW), ("second", NOW + 86_400))
        for model, skill in (("strong", 9), ("weak", 3))
        for environment in ("affine:sat", "affine:ded")
        for index in range(20)
    ]
    opened = open_store(str(tmp_path / ".headgate" / "samples"))
    await opened.put_batch("b-1", rows)
    opened.close()


def test_a_table_shows_ranks_groups_and_differences(headgate: Command, store: None) -> None:
    said = headgate("leaderboard", "--k", "2")
    assert said.status == 0
    assert "strong@main" in said.out
    assert "-0.600" in said.out
    assert "pass@2" in said.out
    assert "clustered wilson" in said.out
    assert "1 of 1 neighbours in the order are ranked" in " ".join(said.out.split())
    assert "is better than" in said.out


@pytest.mark.parametrize("indifference", ["0", "1", "nan"])
def test_an_indifference_that_means_nothing_is_refused(headgate: Command, store: None, indifference: str) -> None:
    said = headgate("leaderboard", f"--indifference={indifference}")
    assert said.status == 2
    assert f"--indifference must be above 0 and below 1 (got {indifference})" in said.err


def test_the_document_has_clustered_intervals_pairs_and_pass_at_k(headgate: Command, store: None) -> None:
    document = headgate("leaderboard", "--k", "1", "--k", "2", "--json").document
    strong, weak = document["models"]
    assert (strong["model"], strong["rank"], weak["rank"]) == ("strong@main", 1, 2)
    assert (strong["samples"], strong["tasks"]) == (80, 40)
    assert strong["pass_at_k"]["2"]["mean"] == pytest.approx(0.9)
    assert document["pairs"][0]["difference"] == pytest.approx(0.6)
    assert document["pairs"][0]["is_told_apart"] is True
    (verdict,) = document["neighbours"]["pairs"]
    assert (verdict["first"], verdict["second"], verdict["tasks"]) == ("strong@main", "weak@main", 20)
    assert all(cell["design_effect"] == pytest.approx(2, abs=0.15) for cell in document["cells"])


def test_it_can_be_narrowed_to_environments_and_to_a_time(headgate: Command, store: None) -> None:
    document = headgate(
        "leaderboard", "--environment", "affine:sat", "--since", "2026-01-01T12:00Z", "--k", "2", "--json"
    ).document
    assert document["environments"] == ["affine:sat"]
    assert document["models"][0]["samples"] == 20
    assert document["models"][0]["pass_at_k"] == {"2": None}
    assert "the most that any has is 1" in document["problems"][0]
    nothing = headgate("leaderboard", "--since", "2026-02-01", "--json").document
    assert (nothing["models"], nothing["against"]) == ([], None)


def test_names_stay_whole_in_a_narrow_terminal_and_the_columns_left_out_are_named(
    headgate: Command, store: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (output, importlib.import_module("headgate.cli.leaderboard")):
        monkeypatch.setattr(module, "console", lambda **_: Console(width=72, soft_wrap=False))
    said = headgate("leaderboard").out
    assert "strong@main" in said
    assert "columns that do not fit: samples, tasks" in said
    assert all(len(line) <= 72 for line in said.splitlines())


def test_html_is_a_page_that_needs_nothing_else(headgate: Command, store: None, tmp_path: Path) -> None:
    said = headgate("leaderboard", "--output", "out/board.html", "--title", "Monday", "--against", "weak")
    assert said.status == 0
    page = (tmp_path / "out" / "board.html").read_text()
    assert "Monday" in page
    assert "difference from weak" in page
    assert 'http-equiv="Content-Security-Policy"' in page


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--against", "nobody"), "there is no scored model 'nobody'"),
        (
            ("--environment", "affine:st"),
            "no sample of environment 'affine:st'; did you mean 'affine:sat'?",
        ),
        (("--environment", "nope"), "It has samples of the environments: affine:ded, affine:sat;"),
        (("--k", "0"), "k of pass@k must be >= 1 (got 0)"),
        (("--since", "yesterday"), "--since must be a date, a time, or an age such as 36h (got 'yesterday')"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(
    headgate: Command, store: None, options: tuple[str, ...], said: str
) -> None:
    result = headgate("leaderboard", *options)
    assert result.status == 2
    assert said in " ".join(result.err.split())


def test_an_empty_store_says_so(headgate: Command) -> None:
    Path(".headgate/samples").mkdir(parents=True)
    assert "There are no scored samples to compare." in headgate("leaderboard").out


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("36h", NOW - 36 * 3_600),
        ("1.5 d", NOW - 1.5 * 86_400),
        ("1970-01-02", 86_400.0),
        ("1970-01-01T01:00", 3_600.0),
        ("1970-01-01T01:00+01:00", 0.0),
    ],
)
def test_moments_are_dates_times_and_how_long_ago(text: str, moment: float) -> None:
    assert moment_of(text, NOW, option="--since") == moment


def test_a_moment_that_is_none_is_refused_with_an_example() -> None:
    with pytest.raises(errors.InvalidInputError) as refused:
        moment_of("7 moons", NOW, option="--since")
    assert "36h" in refused.value.next_step


def test_samples_of_one_model_are_compared_with_nobody(headgate: Command, tmp_path: Path, store: None) -> None:
    alone = _sample("alone", 0, 1.0, environment="affine:abd", campaign="third", at=NOW)

    async def put() -> None:
        opened = open_store(str(tmp_path / "other"))
        await opened.put_batch("b-2", [alone])
        opened.close()

    asyncio.run(put())
    (only,) = headgate("leaderboard", "--store", "other", "--json").document["models"]
    assert (only["rank"], only["versus"], only["groups"]) == (1, None, ["A"])
