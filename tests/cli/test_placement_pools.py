"""Files of pools."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.cli.placement.admin import read_placement_file
from headgate.placement.errors import InvalidPlacementError


def _file(folder: Path, text: str) -> Path:
    path = folder / "pools.yaml"
    path.write_text(text)
    return path


def test_pools_and_rules_are_read(tmp_path: Path) -> None:
    read = read_placement_file(
        _file(
            tmp_path,
            """
            pools:
            - name: rlhf
              quota: {cpu: 6, memory: 8 GiB}
              reserved: [{cpu: 2, memory: 2 GiB}]
            rules:
              aggressiveness: high
              label_rules: {role: {train: [reward, rollout]}}
            """,
        )
    )
    assert [pool.name for pool in read.pools] == ["rlhf"]
    assert read.rules is not None
    assert read.rules.same_pool_threshold == 0.5


def test_a_file_without_rules_leaves_them_as_they_are(tmp_path: Path) -> None:
    assert read_placement_file(_file(tmp_path, '{"pools": []}')).rules is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("pools: {}", "must be a list"),
        ("pools: [1]", "must be a list"),
        ("[]", "must have `pools`"),
        ("pools: []\nrule: {}", "got pools, rule"),
        ("pools: []\nrules: 3", "must be a mapping"),
        ("pools: [", "cannot be read"),
        ("pools: [{name: p, quota: {cpu: -1}}]", "cpu|CPU"),
        ("pools: [{name: p, quotas: {cpu: 1}}]", "quotas"),
        ("pools: [{name: p, quota: {cpu: 1}}, {name: p, quota: {cpu: 1}}]", "pool p twice"),
        ("pools: []\nrules: {min_run_time: 3}", "min_run_time"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_sentence(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InvalidPlacementError, match=says):
        read_placement_file(_file(tmp_path, text))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidPlacementError, match=r"nowhere\.yaml cannot be read"):
        read_placement_file(tmp_path / "nowhere.yaml")


def test_what_is_wrong_in_a_file_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidPlacementError, match=r"cannot be read: line 2, column 1: [^\n]*$"):
        read_placement_file(_file(tmp_path, "pools: [\n"))
    with pytest.raises(InvalidPlacementError, match=r"cannot be read: No such file or directory\."):
        read_placement_file(tmp_path / "nowhere.yaml")
