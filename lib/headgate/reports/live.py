"""A running campaign in a terminal: a table for a live display, and plain lines otherwise."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from headgate.core import status as campaign_status
from headgate.telemetry import counted, duration, printable

_PAUSED_ROWS = 5
"""Maximum waiting models that are named with their reason."""


def live_view(status: campaign_status.CampaignStatus, *, max_rows: int = 30) -> Group:
    """Return the header line and the table of models and environments, for `rich.live.Live` or `Console.print`.

    With more than `max_rows` pairs, it shows those furthest behind, and sums up the others in a line.
    """
    shown = _shown(status.pairs, max_rows)
    parts: list[Text | Table] = [_header(status), _table(status, shown)]
    left_out = len(status.pairs) - len(shown)
    if left_out:
        done, due = sum(pair.done for pair in status.pairs), sum(pair.due for pair in status.pairs)
        text = f"{left_out:,} more pairs of model and environment are not shown; all together {done:,} of {due:,} done"
        parts.append(Text(text, style="dim"))
    parts.extend(_paused(status.models))
    return Group(*parts)


def status_line(status: campaign_status.CampaignStatus) -> str:
    """Return the campaign's figures on one line without colours: for logs and terminals that cannot redraw."""
    return _header(status).plain


def status_lines(status: campaign_status.CampaignStatus) -> list[str]:
    """Return the figures and one `key=value` line per model and environment, without colours or limits."""
    pauses = [line.plain for line in _paused(status.models)]
    return [status_line(status), *(_pair_line(pair) for pair in status.pairs), *pauses]


def engines_said(engines: campaign_status.EngineStatus | None) -> str:
    """Return the state of a model's engines in words; empty for a model with an endpoint."""
    if engines is None:
        return ""
    if engines.state == "awake":
        return f"awake {engines.awake}/{engines.most}"
    retry = "" if engines.retry_s is None else f" (again in {engines.retry_s:.0f} s)"
    return f"{engines.state}{f': {engines.reason}' if engines.reason else ''}{retry}"


def _paused(models: Sequence[campaign_status.ModelStatus]) -> list[Text]:
    """Return a line with the reason for each of the first waiting models, and one line for the others."""
    paused = [(model.model, why) for model in models if (why := _why_it_waits(model))]
    lines = [Text(printable(f"{model} waits: {why}"), "yellow") for model, why in paused[:_PAUSED_ROWS]]
    if len(paused) > _PAUSED_ROWS:
        lines.append(Text(f"and {counted(len(paused) - _PAUSED_ROWS, 'more model')}", "yellow"))
    return lines


def _why_it_waits(model: campaign_status.ModelStatus) -> str:
    if model.is_paused:
        return model.pause_reason or "paused"
    has_no_engine = model.engines is not None and model.queued > 0 and not model.engines.awake
    return f"its engine is {engines_said(model.engines)}" if has_no_engine else ""


def _header(status: campaign_status.CampaignStatus) -> Text:
    queue, workers = status.queue, status.workers
    paused = sum(model.is_paused for model in status.models)
    busy = f"{workers.utilization_last_minute:.0%} busy"
    busy += f", {workers.parked} wait for providers" if workers.parked else ""
    parts = [
        (printable(status.campaign), "bold"),
        (status.state, "green" if status.state == "running" else "yellow"),
        (f"up {duration(status.captured_at - status.started_at)}", ""),
        (f"models {len(status.models)}" + (f" ({paused} paused)" if paused else ""), "yellow" if paused else ""),
        (f"workers {workers.active}/{workers.total} ({busy})", "yellow" if workers.parked else ""),
        *([(f"outside {status.outside.working}/{status.outside.handed}", "")] if status.outside else []),
        (
            f"queue {queue.size:,}" + (" paused" if queue.is_paused else " long" if queue.is_warning else ""),
            "yellow" if queue.is_paused or queue.is_warning else "",
        ),
        (f"samples {status.samples:,}", ""),
        (f"stored {status.stored:,}", ""),
        (f"spool {status.spooled:,}", ""),
    ]
    return Text("  ").join(Text(text, style=style) for text, style in parts)


def _table(status: campaign_status.CampaignStatus, pairs: Sequence[campaign_status.PairStatus]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", expand=False)
    table.add_column("model", overflow="fold", no_wrap=False)
    table.add_column("environment", overflow="fold")
    for column in ("done", "due", "lag", "per day", "score", "errors"):
        table.add_column(column, justify="right", no_wrap=True)
    paused = {model.model for model in status.models if model.is_paused}
    former = ""
    for pair in pairs:
        # `Text` instead of a string, in which rich would interpret names as markup.
        name = Text(
            printable(pair.model) if pair.model != former else "", style="yellow" if pair.model in paused else ""
        )
        former = pair.model
        table.add_row(
            name,
            Text(printable(pair.environment)),
            f"{pair.done:,}",
            f"{pair.due:,}",
            Text(duration(pair.lag_s), style="dim" if pair.lag_s == 0 else ""),
            f"{pair.rate_per_day:,.0f}",
            _score(pair),
            Text(f"{pair.errors:,}", style="red" if pair.errors else "dim"),
        )
    return table


def _shown(pairs: Sequence[campaign_status.PairStatus], max_rows: int) -> list[campaign_status.PairStatus]:
    if len(pairs) <= max_rows:
        return list(pairs)
    furthest = sorted(pairs, key=lambda pair: (-pair.lag_s, -pair.errors, pair.model, pair.environment))[:max_rows]
    return sorted(furthest, key=lambda pair: (pair.model, pair.environment))


def _pair_line(pair: campaign_status.PairStatus) -> str:
    return printable(
        f"model={pair.model} environment={pair.environment} done={pair.done} due={pair.due} lag_s={pair.lag_s:.0f} "
        f"rate_per_day={pair.rate_per_day:.0f} score={_score(pair)} errors={pair.errors}"
    )


def _score(pair: campaign_status.PairStatus) -> str:
    mean = pair.mean_score
    return "-" if mean is None else f"{mean:.3f}"
