"""What benchmarks found, as the artifacts of a flow run show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class BenchOutcome:
    """What became of the scenarios of a run.

    Attributes:
        artifacts: documents of those that ended, in their order.
        failed: those that gave no figures, by name, with the end of what they said.
        left: those that were not run since the run was stopped.
    """

    artifacts: Sequence[Mapping[str, Any]]
    failed: Mapping[str, str] = field(default_factory=dict)
    left: Sequence[str] = ()

    @property
    def bars(self) -> list[Mapping[str, Any]]:
        """Every bar of every scenario."""
        return [bar for artifact in self.artifacts for bar in artifact["bars"]]

    @property
    def missed(self) -> list[str]:
        """The ids of the bars that are missed."""
        return [bar["id"] for bar in self.bars if not bar["met"]]

    def sentence(self) -> str:
        """Return the run in a line."""
        met = len(self.bars) - len(self.missed)
        parts = [f"{met} of {len(self.bars)} bars met in {len(self.artifacts)} scenarios"]
        for what, names in (("missed", self.missed), ("failed", list(self.failed)), ("not run", self.left)):
            if names:
                parts.append(f"{what}: {', '.join(names)}")
        return "; ".join(parts)

    def data(self) -> dict[str, Any]:
        """Return the run as the flow returns it."""
        return {
            "scenarios": [artifact["scenario"] for artifact in self.artifacts],
            "bars": len(self.bars),
            "missed": self.missed,
            "failed": list(self.failed),
            "left": list(self.left),
        }

    def rows(self) -> list[dict[str, str]]:
        """Return the table of bars, those that are missed first."""
        rows = [(bar["met"], artifact["scenario"], bar) for artifact in self.artifacts for bar in artifact["bars"]]
        return [_row(name, bar) for _, name, bar in sorted(rows, key=lambda row: row[0])]

    def markdown(self, page: str) -> str:
        """Return the summary; `page` says in Markdown where the page with all figures is."""
        parts = [f"# Benchmarks\n\n{self.sentence()}.", page]
        for artifact in self.artifacts:
            notes = [f"- {note}" for note in artifact["notes"]]
            rows = [_row(artifact["scenario"], bar) for bar in artifact["bars"]]
            parts.append(f"## {artifact['scenario']}\n\n{artifact['what']}")
            parts.append(_table(("id", "met", "value", "bar", "what", "beside"), rows))
            if notes:
                parts.append("\n".join(notes))
        for name, said in self.failed.items():
            parts.append(f"## {name}\n\nIt gave no figures:\n\n```text\n{said.replace('`', ' ')}\n```")
        return "\n\n".join(parts) + "\n"


def _row(scenario: str, bar: Mapping[str, Any]) -> dict[str, str]:
    return {
        "scenario": scenario,
        "id": bar["id"],
        "met": "met" if bar["met"] else "missed",
        "value": f"{_figure(bar['value'])} {bar['unit']}",
        "bar": f"{'≥' if bar['side'] == 'at_least' else '≤'} {_figure(bar['bar'])}",
        "what": bar["what"],
        "beside": "; ".join(f"{name}: {_figure(value)}" for name, value in bar["beside"].items()),
    }


def _figure(value: object) -> str:
    if not isinstance(value, int | float):
        return "–" if value is None else str(value)
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


def _table(columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> str:
    lines = [" | ".join(columns), " | ".join("---" for _ in columns)]
    lines += [" | ".join(row[column].replace("|", "\\|") for column in columns) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)
