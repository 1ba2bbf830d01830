"""The summary of a run: every figure of every case and every check, in the seed's schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import orjson

from headgate.bench.idle.cases import Mode
from headgate.bench.idle.checks import Check, checks_document

SUMMARY_SCHEMA: Final = "async-scheduling-idle-summary-v1"
SUITE: Final = "async-scheduling-idle-regression"
SUITE_VERSION: Final = "1.1"

Time = Literal["virtual", "real"]


def summary_of(cases: Mapping[str, Mapping[str, Any]], mode: Mode, *, time: Time, seed: int) -> dict[str, Any]:
    """Return the summary of the measured cases, by id; the checks are added by `with_checks`."""
    return {
        "summary_schema_version": SUMMARY_SCHEMA,
        "suite_id": SUITE,
        "suite_version": SUITE_VERSION,
        "mode": mode,
        "scheduler": "headgate",
        "time": time,
        "seed": seed,
        "case_count": len(cases),
        "largest_generation_count": max((case["generation_count"] for case in cases.values()), default=0),
        "cases": {name: dict(case) for name, case in sorted(cases.items())},
    }


def with_checks(summary: Mapping[str, Any], checks: Sequence[Check]) -> dict[str, Any]:
    """Return a summary with its checks."""
    return dict(summary) | {"checks": checks_document(checks)}


def summary_bytes(summary: Mapping[str, Any]) -> bytes:
    """Return a summary as a file: the same figures give the same bytes."""
    return orjson.dumps(summary, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n"
