"""Tables of commands leave columns out before they break a name."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.cli import main


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
