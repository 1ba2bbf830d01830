"""The parameters of the flows: their types and bounds. Prefect takes their descriptions from the flows' docstrings."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from headgate.config import MAX_DAILY_RATE

Name = Annotated[str, Field(min_length=1)]
"""An environment or a campaign."""

Block = str
"""Name of a block document; empty for what the worker's settings say. A name, and not the block itself: `prefect.yaml`,
the command line and the form all take it, and no secret is copied into a deployment."""

Seconds = Annotated[float, Field(gt=0, le=86_400)]

DailyRate = Annotated[float, Field(gt=0, le=MAX_DAILY_RATE)]

Workers = Annotated[int, Field(ge=1, le=100_000)]

Instances = Annotated[int, Field(ge=1, le=1_000_000)]

Repeats = Annotated[int, Field(ge=1, le=10_000)]
"""Samples of each task of a matrix."""

Indifference = Annotated[float, Field(gt=0, lt=1)]
"""Of mean scores."""

Judgements = Annotated[int, Field(ge=1, le=15)]
"""How often each answer is judged."""

Comparisons = Annotated[int, Field(ge=0, le=10_000_000)]
"""Of an arena's run, at most."""

Hours = Annotated[float, Field(gt=0, le=87_600)]

PassAt = Annotated[int, Field(ge=1, le=10_000)]
"""The k of pass@k."""

Missing = Literal["bound", "exclude", "zero"]
"""What samples without a score count as."""

Title = Annotated[str, Field(min_length=1, max_length=200)]

Rounds = Annotated[int, Field(ge=1, le=1_000)]

Size = Literal["quick", "full"]
"""Of the parameters of a benchmark."""

Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]

Settings = dict[str, Any]
"""Any setting of `headgate.config.Settings` by its name."""

Serve = dict[str, Any]
"""Section `serve` of a roster's entry."""

Options = dict[str, Any]
"""Fields of requests."""

Newest = Annotated[int, Field(ge=1, le=10_000)]
"""Checkpoints."""

Path = Annotated[str, Field(min_length=1)]
"""A file or folder on the worker."""

Top = Annotated[int, Field(ge=1, le=10_000)]
"""Submissions of each track."""

LocalWorkers = Annotated[int, Field(ge=0, le=10_000)]
"""Jobs of a queue that a flow run works on itself at a time."""

Executors = str
"""The setting `executors`, as it is written on a command line."""

Reserve = Literal["ask", "before", "never"]
"""When a job's command gets its policy server."""

FolderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
"""A name that a folder can have."""

Rollouts = Annotated[int, Field(ge=1, le=256)]

ExtraPriority = Annotated[float, Field(ge=-100, le=100)]

StartSeconds = Annotated[float, Field(ge=0, le=3_600)]
"""From waking a worker until it can answer."""

Slots = Annotated[int, Field(ge=1, le=10_000)]
"""Requests that a worker runs at once."""

ElasticWorkers = Annotated[int, Field(ge=1, le=1_000)]

Gpus = Annotated[int, Field(ge=1, le=1_000)]

Copies = Annotated[int, Field(ge=1, le=1_000)]

Scale = Annotated[float, Field(gt=0, le=24)]
"""Of the lengths of time of a made-up load."""
