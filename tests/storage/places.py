"""Where a store of samples may be."""

from __future__ import annotations

import pytest

IN_BOTH = pytest.mark.parametrize("objects", ["folder", "s3"], indirect=True)
"""Tries a test of a store in a folder in a bucket, too: for what a place has to promise."""

IN_A_BUCKET_AT_LENGTH = pytest.mark.parametrize(
    "objects", ["folder", pytest.param("s3", marks=pytest.mark.long)], indirect=True
)
"""Tries it in a bucket by `make test-long` alone: it rests on promises that `test_objects.py` holds for both places."""
