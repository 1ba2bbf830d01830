"""The formats by name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, get_args

from headgate.core import errors

ExportFormat = Literal["jsonl", "inspect", "openai", "parquet", "hf", "seed-results", "seed-summary"]
ImportFormat = Literal["jsonl", "inspect", "parquet", "seed-results"]

EXPORT_FORMATS: Final[tuple[str, ...]] = get_args(ExportFormat)
IMPORT_FORMATS: Final[tuple[str, ...]] = get_args(ImportFormat)

_ONLY_OUT: Final = {
    "seed-summary": "a summary holds counts and no samples, so there is nothing to import",
    "openai": "lines for fine-tuning are not read back",
    "hf": "a data set for Hugging Face is not read back",
}
_INSTEAD: Final = {
    "seed-summary": "Import the result shards instead, with --format seed-results.",
    "openai": "Move samples between stores with --format jsonl or parquet.",
    "hf": "Move samples between stores with --format jsonl or parquet.",
}


def checked_format(form: str, known: Sequence[str]) -> None:
    """Return when the format is one of those that are known.

    Raises:
        errors.InvalidInputError: if not; with the nearest one, or what to do where it goes the other way only.
    """
    if form in known:
        return
    if form in _ONLY_OUT:
        raise errors.InvalidInputError(_ONLY_OUT[form], next_step=_INSTEAD[form])
    near = difflib.get_close_matches(form, known, n=1)
    raise errors.InvalidInputError(
        f"there is no format {form!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
        next_step=f"The formats are {', '.join(known)}.",
    )


def is_one_log(output: Path) -> bool:
    """Return whether an output of this name is one log of inspect_ai, and not a folder of them."""
    return output.suffix in {".eval", ".json"} and not output.is_dir()


def missing_inspect() -> errors.MissingExtraError:
    """Return the error for a machine without inspect_ai."""
    return errors.MissingExtraError("The format inspect", "inspect")
