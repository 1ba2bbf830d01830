"""Tables of commands leave columns out before they break a name."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import orjson
import pytest
from rich.console import Console

from headgate.cli import main
from headgate.core import Spending
from headgate.storage import Journal
from headgate.storage.spending import SpendingReport


@pytest.mark.parametrize(
    ("length", "left_out"), [(10, []), (60, ["weight", "has key", "served as"]), (110, "each row is a paragraph")]
)
def test_names_are_whole_however_long_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], length: int, left_out: list[str] | str
) -> None:
    name = f"organisation/{'model-' * length}"[:length]
    url = f"https://{'a' * max(length - 20, 1)}.example.com/v1"
    roster = tmp_path / "roster.yaml"
    roster.write_text(f"models: [{{name: {name}, base_url: '{url}'}}]")
    assert main(["models", "--roster", str(roster)]) == 0
    said = capsys.readouterr().out
    assert name in said
    assert url in said
    missing = [column for column in ("weight", "has key", "served as") if f"┃ {column} " not in said]
    if isinstance(left_out, str):
        assert "┃" not in said
        assert f"\n{name}\n" in said
    else:
        assert missing == left_out
        assert (", ".join(left_out) + "; --json has them" in said) == bool(left_out)


@pytest.mark.parametrize(("columns", "widest"), [("100", 100), ("", 160), ("0", 160), ("wide", 160)])
def test_a_table_that_is_piped_is_as_wide_as_columns_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str, widest: int
) -> None:
    roster, url = tmp_path / "roster.yaml", f"https://{'a' * 30}.example.com/v1"
    roster.write_text(f"models: [{{name: organisation/model, base_url: '{url}'}}]")
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["models", "--roster", str(roster)]) == 0
    said = capsys.readouterr().out
    assert url in said
    assert max(map(len, said.splitlines())) <= widest
    assert ("columns that do not fit: weight" in said) == (widest == 100)


PRICED = """
models:
  - {name: large, base_url: "https://api.example.com/v1", lane: auto, daily_tokens: 1000000, daily_cost: 2.5,
     price_in: 3, price_out: 15, batch_discount: 0.5}
  - {name: small, base_url: "https://api.example.com/v1"}
"""


def test_models_shows_lane_price_and_what_is_left_of_budgets_within_100_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("headgate.cli.output.console", lambda *, stderr=False: Console(stderr=stderr, width=100))
    Path("roster.yaml").write_text(PRICED)
    with closing(Journal(Path(".headgate/journal"), "main")) as journal:
        spent = {"large@main": SpendingReport(Spending(250_000, 10, 400_000))}
        journal.exchange_spending(spent, time.time())
    assert main(["models", "--roster", "roster.yaml"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    told = " ".join(" ".join(lines).replace("│", " ").split())
    assert "auto 3/15 750,000 of 1,000,000 tokens," in told
    assert "2.1 of 2.5 cost" in told
    assert main(["models", "--roster", "roster.yaml", "--set", "lanes=affine:*=batch", "--json"]) == 0
    large, small = orjson.loads(capsys.readouterr().out)
    assert (large["lane"], large["price"]["output"], large["batch_price"]["output"]) == ("auto", 15.0, 7.5)
    assert [(one["name"], one["left"]) for one in large["budgets"]] == [("daily_tokens", 750_000), ("daily_cost", 2.1)]
    assert (small["lane"], small["price"], small["budgets"]) == ("affine:*=batch", None, [])
