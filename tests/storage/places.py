"""Where a store of samples may be."""

from __future__ import annotations

import pytest

IN_BOTH = pytest.mark.parametrize("objects", ["folder", "s3"], indirect=True)
"""Tries a test of a store in a folder in a bucket, too: for what a place has to promise."""
