"""The baseline: figures of an earlier run, and how far this run may fall behind them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from headgate.core.errors import InvalidInputError
from headgate_bench.idle.cases import Mode
from headgate_bench.idle.checks import SUMMARY_SCHEMA, Check, Tolerances

UTILISATION: Final = "llm_wait_utilization_ratio"
IDLE: Final = (
    "llm_wait_idle_ratio",
    "llm_wait_starved_idle_ratio",
    "llm_wait_frontier_dependency_horizon_idle_ratio",
)
THROUGHPUT: Final = "throughput_generations_per_second"
COMPARED: Final = (UTILISATION, *IDLE, THROUGHPUT)

_FILE: Final = Path(__file__).with_name("baselines.toml")


def committed_baseline(mode: Mode) -> dict[str, Any]:
    """Return the built-in baseline of this version of Headgate, in the form of `read_baseline`."""
    rows = tomllib.loads(_FILE.read_text("utf-8"))[mode]
    cases = {name: dict(zip(COMPARED, figures, strict=True)) for name, figures in rows.items()}
    return {"summary_schema_version": SUMMARY_SCHEMA, "mode": mode, "cases": cases}


def baseline_of(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a summary that later runs are compared with; a whole summary is a valid baseline, too."""
    cases = summary["cases"]
    return {name: value for name, value in summary.items() if name not in {"cases", "checks"}} | {
        "cases": {name: {metric: cases[name][metric] for metric in COMPARED} for name in sorted(cases)}
    }


def read_baseline(path: Path, mode: Mode) -> dict[str, Any]:
    """Return a baseline: a summary of this suite, by Headgate or by DataDesigner's own tools.

    Raises:
        InvalidInputError: if the file cannot be read, has another schema, or belongs to the other mode.
    """
    try:
        found: Any = orjson.loads(path.read_bytes())
    except OSError as error:
        raise _refused(path, f"cannot be read: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise _refused(path, f"is not JSON: {error}") from None
    schema = found.get("summary_schema_version") if isinstance(found, dict) else None
    if schema != SUMMARY_SCHEMA:
        raise _refused(path, f"has the schema {schema!r}, not {SUMMARY_SCHEMA!r}")
    if found.get("mode") != mode:
        raise _refused(path, f"is of the mode {found.get('mode')!r}, and this run of {mode!r}")
    cases = found.get("cases")
    if not isinstance(cases, dict) or not cases:
        raise _refused(path, "has no cases")
    for name, case in cases.items():
        wrong = [metric for metric in COMPARED if not isinstance(case, dict) or not _is_number(case.get(metric))]
        if wrong:
            raise _refused(path, f"gives no number for {wrong[0]} of {name}")
    return dict(found)


def compared(
    summary: Mapping[str, Any], baseline: Mapping[str, Any], tolerances: Tolerances, *, is_whole: bool
) -> list[Check]:
    """Return the checks of a summary against a baseline; only a whole run must have all the baseline's cases."""
    cases: Mapping[str, Any] = summary["cases"]
    checks: list[Check] = []
    for name, before in sorted(baseline["cases"].items()):
        if name in cases:
            checks += _case(name, cases[name], before, tolerances)
        elif is_whole:
            checks.append(Check(f"{name} in the baseline", "baseline", "error", False, "missing", "present"))
    return checks


def _case(name: str, now: Mapping[str, Any], before: Mapping[str, Any], tolerances: Tolerances) -> Iterator[Check]:
    def error(metric: str, passed: bool, observed: float, expected: str) -> Check:
        return Check(f"{name} {metric} against the baseline", "baseline", "error", passed, observed, expected)

    gained = now[UTILISATION] - before[UTILISATION]
    yield error(UTILISATION, gained >= -tolerances.utilisation, gained, f">= -{tolerances.utilisation}")
    for metric in IDLE:
        grown = now[metric] - before[metric]
        yield error(metric, grown <= tolerances.idle, grown, f"<= {tolerances.idle}")
    share = now[THROUGHPUT] / before[THROUGHPUT] if before[THROUGHPUT] else 1.0
    is_fast, expected = share >= tolerances.throughput, f">= {tolerances.throughput} of the baseline's"
    yield Check(f"{name} throughput against the baseline", "baseline", "warning", is_fast, share, expected)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _refused(path: Path, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"baseline {path} {why}",
        next_step="Give the summary.json or baseline.json of a run: --set baseline=FILE; `none` compares with nothing.",
    )
