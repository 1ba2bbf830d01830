"""Tables of prices: what they say, and what is refused of them in a sentence."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from headgate.core import LanePrice, Price, errors
from headgate.sampling import read_prices

ROW: dict[str, Any] = {"model": "m", "input": 0.25, "output": 2.0}
TABLE: dict[str, Any] = {"date": "2026-11-01", "source": "https://provider.example/prices", "prices": [ROW]}


def written(folder: Path, **changes: Any) -> str:
    path = folder / "prices.yaml"
    path.write_text(yaml.safe_dump(TABLE | changes))
    return str(path)


def test_a_table_has_prices_by_model_and_lane(tmp_path: Path) -> None:
    batch = {"model": "m", "lane": "batch", "input": 0.1, "output": 1.0, "cached_input": 0.01}
    halved = {"model": "n", "input": 3.0, "output": 15.0, "reasoning": 20.0, "batch_discount": 0.5}
    found = read_prices(written(tmp_path, prices=[ROW, batch, halved]), date(2026, 11, 2))
    assert found.by_model == {
        "m": Price(LanePrice.of(0.25, 2.0), LanePrice.of(0.1, 1.0, cached=0.01)),
        "n": Price.of(3.0, 15.0, reasoning=20.0, batch_discount=0.5),
    }
    assert found.told.endswith("prices.yaml of 2026-11-01 (https://provider.example/prices)")


def test_a_table_may_be_json_and_without_one_there_are_no_prices(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(TABLE))
    assert read_prices(str(path), date(2026, 11, 2)).by_model == {"m": Price.of(0.25, 2.0)}
    assert not read_prices("").by_model


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prices": [ROW | {"input": -0.5}]}, r"prices\[0\].input must be greater than or equal to 0 \(got -0.5\)"),
        ({"prices": [ROW | {"output": float("nan")}]}, r"prices\[0\].output must be a finite number \(got nan\)"),
        ({"prices": [ROW | {"lane": "night"}]}, r"prices\[0\].lane must be 'now' or 'batch' \(got 'night'\)"),
        ({"prices": [ROW, ROW]}, r"a model must have one price in each lane \(got two of 'm' in now\)"),
        ({"prices": [ROW | {"batch_discount": 0.5}, ROW | {"lane": "batch"}]}, r"got two of 'm' in batch"),
        ({"prices": [ROW | {"lane": "batch", "batch_discount": 0.5}]}, r"belongs in its entry for lane now"),
        ({"prices": [ROW | {"batch_discount": 50}]}, r"batch_discount must be less than or equal to 1 \(got 50\)"),
        ({"prices": [ROW | {"inptu": 1.0}]}, r"did you mean"),
        ({"prices": []}, r"prices must "),
        ({"date": "2027-01-01"}, r"date must not be in the future \(got 2027-01-01\)"),
        ({"source": ""}, r"source must "),
    ],
)
def test_what_breaks_a_rule_is_one_sentence_with_its_value(changes: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidSettingError, match=said) as refused:
        read_prices(written(tmp_path, **changes), date(2026, 11, 2))
    assert refused.value.next_step


def test_a_table_that_is_not_there_is_refused() -> None:
    with pytest.raises(errors.InvalidSettingError, match=r"table of prices .*nowhere.yaml cannot be read"):
        read_prices("/nowhere.yaml")
