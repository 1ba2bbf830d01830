"""Keys and manifests: reversible names, equal bytes, and nothing corrupt that is taken for good."""

from __future__ import annotations

from datetime import date
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core import errors
from headgate.storage.manifest import Manifest, Part, manifest_bytes, manifest_of, sealed, unsealed
from headgate.storage.objects import (
    batch_id_of,
    checked_batch_id,
    compaction_id,
    compaction_number,
    manifest_key,
    part_key,
)

PART = Part(
    path="samples/environment=a/date=2026-01-01/b-0-0.parquet",
    environment="a",
    day=date(2026, 1, 1),
    rows=3,
    size_bytes=10,
    sha256="00",
    min_finished_at=1.25,
    max_finished_at=2.5,
    models=("m@main", "n@main"),
)
MANIFEST = Manifest("b", (PART,), 2, "quarantine/b.jsonl", "score must …", ("x",), ("x", "y"), {"z": ("p", "q")}, 7.5)


@given(st.text(alphabet="aZ09._:@/+-%= é", min_size=1, max_size=40))
def test_an_environment_is_read_back_from_its_path(environment: str) -> None:
    key = part_key(environment, date(2026, 1, 2), "batch", 3, "ab" * 32)
    assert unquote(key.split("/")[1]) == f"environment={environment}"
    assert key.split("/")[2:] == ["date=2026-01-02", "batch-3-abababababab.parquet"]


def test_batch_ids_and_manifest_keys_belong_together() -> None:
    assert batch_id_of(manifest_key("b-1.x")) == "b-1.x"
    assert batch_id_of("manifests/.hidden") is None
    assert batch_id_of("manifests/a.json.bak") is None
    assert compaction_number(compaction_id(12)) == 12
    assert compaction_number("batch-12") is None


@pytest.mark.parametrize("batch_id", ["", "a/b", "../x", "compact-000000001", "x" * 121, "a b", "a\n"])
def test_a_batch_id_that_is_no_file_name_is_refused(batch_id: str) -> None:
    with pytest.raises(errors.InvalidInputError, match="cannot name a batch"):
        checked_batch_id(batch_id)


def test_a_manifest_is_read_back_and_has_equal_bytes_for_equal_content() -> None:
    data = manifest_bytes(MANIFEST)
    assert manifest_of(data, "k") == MANIFEST
    assert manifest_bytes(manifest_of(data, "k")) == data


@given(st.integers(0, len(manifest_bytes(MANIFEST)) - 2), st.integers(1, 255))
def test_any_changed_byte_of_a_manifest_is_noticed(place: int, change: int) -> None:
    data = bytearray(manifest_bytes(MANIFEST))
    data[place] ^= change
    with pytest.raises(errors.CorruptDataError, match="manifests/b"):
        manifest_of(bytes(data), "manifests/b.json")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b'{"content": {}}', b'{"content": 3, "sha256": "x"}'])
def test_what_is_no_manifest_is_corrupt(data: bytes) -> None:
    with pytest.raises(errors.CorruptDataError):
        manifest_of(data, "k")


def test_a_manifest_of_a_newer_format_says_so() -> None:
    with pytest.raises(errors.CorruptDataError, match="format 2, this version of Headgate reads 1"):
        unsealed(sealed({"format": 2}), "k")


def test_a_manifest_without_its_fields_is_corrupt() -> None:
    with pytest.raises(errors.CorruptDataError, match="lacks a field"):
        manifest_of(sealed({"format": 1, "batch_id": "b"}), "k")
