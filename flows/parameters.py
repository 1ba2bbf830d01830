"""The parameters of the flows: their types and bounds. Prefect takes their descriptions from the flows' docstrings."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from headgate.config import MAX_DAILY_RATE

Name = Annotated[str, Field(min_length=1)]
"""An environment or a campaign."""

Block = str
"""Name of a block document; empty for the worker's settings. A name rather than the block itself: `prefect.yaml`, the
command line and the form all accept it, and no secret is copied into a deployment."""

Seconds = Annotated[float, Field(gt=0, le=86_400)]

DailyRate = Annotated[float, Field(gt=0, le=MAX_DAILY_RATE)]

Workers = Annotated[int, Field(ge=1, le=100_000)]

Instances = Annotated[int, Field(ge=1, le=1_000_000)]

Repeats = Annotated[int, Field(ge=1, le=10_000)]
"""Samples of each task of a matrix."""

Indifference = Annotated[float, Field(gt=0, lt=1)]
"""Difference of mean scores."""

Judgements = Annotated[int, Field(ge=1, le=15)]
"""How often each answer is judged."""

Comparisons = Annotated[int, Field(ge=0, le=10_000_000)]
"""Maximum number of new comparisons in an arena run."""

Hours = Annotated[float, Field(gt=0, le=87_600)]

PassAt = Annotated[int, Field(ge=1, le=10_000)]
"""The k of pass@k."""

Missing = Literal["bound", "exclude", "zero"]
"""How samples without a score count."""

Title = Annotated[str, Field(min_length=1, max_length=200)]

Rounds = Annotated[int, Field(ge=1, le=1_000)]

Size = Literal["quick", "full"]
"""Size of a benchmark's parameters."""

Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]

Settings = dict[str, Any]
"""Settings of `headgate.config.Settings` by name."""

Serve = dict[str, Any]
"""Section `serve` of a roster's entry."""

Options = dict[str, Any]
"""Extra fields of requests."""

Newest = Annotated[int, Field(ge=1, le=10_000)]
"""Number of checkpoints."""

Path = Annotated[str, Field(min_length=1)]
"""A file or folder on the worker."""

Top = Annotated[int, Field(ge=1, le=10_000)]
"""Number of submissions per track."""

LocalWorkers = Annotated[int, Field(ge=0, le=10_000)]
"""Number of jobs that a flow run works on at a time."""

Executors = str
"""The setting `executors`, as written on a command line."""

Reserve = Literal["ask", "before", "never"]
"""When a job's command gets its policy server: on request, before it starts, or never."""

FolderName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
"""A valid folder name."""

Rollouts = Annotated[int, Field(ge=1, le=256)]

ExtraPriority = Annotated[float, Field(ge=-100, le=100)]

StartSeconds = Annotated[float, Field(ge=0, le=3_600)]
"""Seconds from waking a worker until it can answer."""

Slots = Annotated[int, Field(ge=1, le=10_000)]
"""Requests that a worker runs at once."""

ElasticWorkers = Annotated[int, Field(ge=1, le=1_000)]

Gpus = Annotated[int, Field(ge=1, le=1_000)]

Copies = Annotated[int, Field(ge=1, le=1_000)]

Scale = Annotated[float, Field(gt=0, le=24)]
"""Factor on the times of a generated load."""
