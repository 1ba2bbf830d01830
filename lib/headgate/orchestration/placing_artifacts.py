"""The artifacts of a placed training: roles, preemptions, who held what, and what was learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from headgate.orchestration.artifact_keys import artifact_key
from headgate.orchestration.artifacts import publish_markdown, publish_table
from headgate.orchestration.placement_tenures import Stop, Tenure, TenureEnd, preemption_rows, role_rows
from headgate.orchestration.placement_timeline import CAPTION, timeline_svg
from headgate.orchestration.placing_rounds import Learned
from headgate.orchestration.upkeep import figures_markdown

_NONE: Final = "Nothing was stopped for other work."
_COST: Final = (
    "The ledger counts all work of a stay as lost. A role goes on from its last checkpoint, so a stop costs one step "
    "of it, a batch of episodes or a step of the gradient, and a new start."
)


async def publish_placing(name: str, learned: Learned, tenures: Sequence[Tenure], stops: Sequence[Stop]) -> None:
    """Publish everything about a training, whether it came to its end or not."""
    sentence = training_sentence(learned, tenures)
    await publish_table(artifact_key("placement-roles", name), role_rows(tenures), sentence)
    cut = preemption_rows(tenures, stops)
    await publish_table(artifact_key("placement-preemptions", name), cut, sentence if cut else _NONE)
    await publish_markdown(artifact_key("placement", name), placing_markdown(name, learned, tenures, stops), sentence)
    figure = timeline_svg(tenures)
    if figure is not None:
        await publish_markdown(artifact_key("placement-timeline", name), figures_markdown({CAPTION: figure}), sentence)


def training_sentence(learned: Learned, tenures: Sequence[Tenure]) -> str:
    """Return what came of a training in one sentence."""
    stops = sum(tenure.end is TenureEnd.PREEMPTED for tenure in tenures)
    parts = [f"{len(learned.rounds)} rounds of {learned.episodes:,} episodes", f"{stops} preemptions"]
    if learned.before is not None and learned.after is not None:
        parts.append(f"mean reward {learned.before:.3f} before, {learned.after:.3f} after")
    return ", ".join(parts)


def placing_markdown(name: str, learned: Learned, tenures: Sequence[Tenure], stops: Sequence[Stop] = ()) -> str:
    """Return the report."""
    rounds = [
        {
            "round": str(figures["version"]),
            "batches": str(figures["batches"]),
            "mean reward of its rollouts": f"{figures['mean_reward']:.3f}",
        }
        for figures in learned.rounds
    ]
    sections = [
        f"# Training {name}",
        f"{training_sentence(learned, tenures)}.",
        "## Learning",
        _table(rounds, "No round came to its end."),
        "## Roles",
        _table(role_rows(tenures), "Nothing was placed."),
        "## Preemptions",
        _table(preemption_rows(tenures, stops), _NONE),
        _COST,
    ]
    return "\n\n".join(sections) + "\n"


def _table(rows: Sequence[Mapping[str, Any]], otherwise: str) -> str:
    if not rows:
        return otherwise
    lines = [list(rows[0]), ["---"] * len(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value: str) -> str:
    return value.replace("|", "\\|")
