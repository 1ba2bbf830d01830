"""Samples as Parquet: one file with the store's columns, or a folder for Hugging Face `datasets`."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import polars as pl
import yaml

from headgate.core import Sample, errors
from headgate.storage.exchange.formats import messages_of
from headgate.storage.exchange.windows import ROWS_AT_ONCE, Plan, Window
from headgate.storage.schema import ADDED, COLUMNS, FRAME_SCHEMA

_ZSTD_LEVEL: Final = 3
_MESSAGES: Final = pl.List(pl.Struct({"role": pl.String, "content": pl.String}))
_HUB_TYPES: Final = {"String": "string", "Int64": "int64", "Float64": "float64", "Boolean": "bool"}


class ParquetFile:
    """One file with the columns of a sample. Lives as long as one export."""

    def __init__(self, room: Path) -> None:
        self._room = room
        self._windows: list[Path] = []

    def add(self, _window: Window, frame: pl.DataFrame) -> int:
        """Write a window to a temporary file; return its rows."""
        self._windows.append(self._room / f"window-{len(self._windows)}")
        frame.write_parquet(self._windows[-1], compression="zstd", compression_level=_ZSTD_LEVEL)
        return frame.height

    def finish(self) -> None:
        """Combine the windows into one file, with only some rows in memory at a time."""
        made = self._room / "made"
        if len(self._windows) == 1:
            self._windows[0].replace(made)
        elif self._windows:
            pl.scan_parquet(self._windows, glob=False).sink_parquet(
                made, compression="zstd", compression_level=_ZSTD_LEVEL, maintain_order=True
            )
        else:
            pl.DataFrame(schema=FRAME_SCHEMA).write_parquet(made, compression="zstd")


class HubFolder:
    """A dataset card and Parquet files by environment, for `datasets.load_dataset(folder)`."""

    def __init__(self, room: Path, plan: Plan) -> None:
        plan.require_rows("a data set without files cannot be loaded")
        self._made = room / "made"
        self._plan = plan
        self._names = _config_names(sorted({window.environment for window in plan.windows}))
        self._files = Counter(window.environment for window in plan.windows)
        self._done: Counter[str] = Counter()
        self._rows: defaultdict[str, int] = defaultdict(int)

    def add(self, window: Window, frame: pl.DataFrame) -> int:
        """Write a window as one file; return its rows."""
        name = window.environment
        folder = self._made / "data" / self._names[name]
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"train-{self._done[name]:05d}-of-{self._files[name]:05d}.parquet"
        messages = [
            [{"role": words.role, "content": words.content} for words in messages_of(text)]
            for text in frame["conversation"]
        ]
        shown = frame.drop("conversation").with_columns(pl.Series("messages", messages, dtype=_MESSAGES))
        shown.write_parquet(file, compression="zstd", compression_level=_ZSTD_LEVEL)
        self._done[name] += 1
        self._rows[name] += frame.height
        return frame.height

    def finish(self) -> None:
        """Write the card."""
        (self._made / "README.md").write_text(self._card(), encoding="utf-8")

    def _card(self) -> str:
        configs: list[dict[str, object]] = [{"config_name": "all", "default": True, "data_files": _files("*")}]
        configs += [{"config_name": name, "data_files": _files(name)} for name in self._names.values()]
        infos = [{"config_name": config["config_name"], "features": _features()} for config in configs]
        header = {"license": "unknown", "configs": configs, "dataset_info": infos}
        rows = "\n".join(
            f"| `{name}` | `{self._names[name]}` | {count} |" for name, count in sorted(self._rows.items())
        )
        models = "\n".join(f"- `{model}`" for model in self._plan.models)
        return _CARD.format(
            header=yaml.safe_dump(header, sort_keys=False), rows=rows, models=models, total=sum(self._rows.values())
        )


_CARD: Final = """---
{header}---

# Samples of models on environments

{total} samples, exported by Headgate. Each row is one episode of one model in one environment: its score in [0, 1], or
none and the kind of error where a provider or the environment failed, and the messages that were exchanged.

The licence is not known: the texts are those of the environments and of the models. State your own before
you publish it.

| environment | configuration | samples |
|---|---|---|
{rows}

Models:

{models}
"""


def samples_of_parquet(file: Path) -> Iterator[Sample]:
    """Yield the samples of a file that an export wrote."""
    try:
        schema = pl.read_parquet_schema(file)
        if missing := [name for name in COLUMNS if name not in schema and name not in ADDED]:
            raise errors.InvalidInputError(
                f"{file} has no column {missing[0]!r}, so it holds no samples",
                next_step=f"An export in the format parquet has the columns {', '.join(COLUMNS)}.",
            )
        rows = pl.scan_parquet(file, glob=False).select(
            (pl.col(name) if name in schema else pl.lit(ADDED.get(name))).cast(FRAME_SCHEMA[name]).alias(name)
            for name in COLUMNS
        )
        start = 0
        while (some := rows.slice(start, ROWS_AT_ONCE).collect()).height:
            start += some.height
            yield from (Sample(**row) for row in some.iter_rows(named=True))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise errors.InvalidInputError(
            f"{file} cannot be read as Parquet: {str(error).splitlines()[0]}",
            next_step="Name a whole file that `headgate export --format parquet` wrote.",
        ) from error


def _features() -> list[dict[str, object]]:
    """Return the columns as a card states them; a new list each time, or YAML would write references."""
    columns: list[dict[str, object]] = [
        {"name": name, "dtype": _HUB_TYPES[str(FRAME_SCHEMA[name])]} for name in COLUMNS if name != "conversation"
    ]
    messages = [{"name": "role", "dtype": "string"}, {"name": "content", "dtype": "string"}]
    return [*columns, {"name": "messages", "list": messages}]


def _files(folder: str) -> list[dict[str, str]]:
    return [{"split": "train", "path": f"data/{folder}/*.parquet"}]


def _config_names(environments: list[str]) -> dict[str, str]:
    """Return a name per environment that a folder and a configuration of `datasets` may have, none twice."""
    taken: dict[str, str] = {}
    for environment in environments:
        name = stem = re.sub(r"[^A-Za-z0-9._-]", "-", environment)
        number = 2
        while name in taken.values() or name == "all":
            name, number = f"{stem}-{number}", number + 1
        taken[environment] = name
    return taken
