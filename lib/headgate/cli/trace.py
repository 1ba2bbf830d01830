"""`headgate trace`: convert a file of events into a trace that Perfetto opens."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headgate.cli.output import AsJson, counted, tell
from headgate.telemetry import convert_events


def trace(
    events: Annotated[Path, Parameter(help="File of events, which the setting `events_file` names.")],
    *,
    output: Annotated[
        Path, Parameter(name=("--output", "-o"), help="File to write; a name that ends in .gz is compressed.")
    ] = Path("trace.json"),
    as_json: AsJson = False,
) -> int:
    """Write the trace of a file of events, for https://ui.perfetto.dev or chrome://tracing.

    Rotated predecessors of the file are read first.
    """
    made = convert_events(events, output)
    path = str(output.resolve())
    said = f"{counted(made.events, 'event')} of {counted(made.runs, 'run')} over {made.seconds:.1f} s: {path}"
    return tell({"path": path, **asdict(made)}, said, as_json=as_json)
