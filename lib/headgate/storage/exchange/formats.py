"""The formats by name, and the kinds of the errors in them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, get_args

from headgate.core import ErrorKind, did_you_mean, errors

ExportFormat = Literal["jsonl", "inspect", "openai", "parquet", "hf", "affine-results", "affine-summary"]
ImportFormat = Literal["jsonl", "inspect", "parquet", "affine-results"]

EXPORT_FORMATS: Final[tuple[str, ...]] = get_args(ExportFormat)
IMPORT_FORMATS: Final[tuple[str, ...]] = get_args(ImportFormat)

_ONLY_OUT: Final = {
    "affine-summary": "a summary holds counts and no samples, so there is nothing to import",
    "openai": "lines for fine-tuning are not read back",
    "hf": "a data set for Hugging Face is not read back",
}
_INSTEAD: Final = {
    "affine-summary": "Import the result shards instead, with --format affine-results.",
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
    raise errors.InvalidInputError(
        f"there is no format {form!r}{did_you_mean(form, known)}",
        next_step=f"The formats are {', '.join(known)}.",
    )


def is_one_log(output: Path) -> bool:
    """Return whether an output of this name is one log of inspect_ai, and not a folder of them."""
    return output.suffix in {".eval", ".json"} and not output.is_dir()


def missing_inspect() -> errors.MissingExtraError:
    """Return the error for a machine without inspect_ai."""
    return errors.MissingExtraError("The format inspect", "inspect")


_KINDS: Final[tuple[tuple[re.Pattern[str], ErrorKind], ...]] = (
    (
        re.compile(r"(?i)\b(429|402)\b|maximum capacity|try again later|zero balance|rate.?limit"),
        ErrorKind.RATE_LIMITED,
    ),
    (re.compile(r"(?i)\b(401|403)\b|invalid api key|api_key"), ErrorKind.AUTH),
    (re.compile(r"(?i)\b400\b|bad request"), ErrorKind.BAD_REQUEST),
    (re.compile(r"(?i)time.?out|timed out|\b504\b"), ErrorKind.PROVIDER_TIMEOUT),
    (re.compile(r"(?i)\b5\d\d\b|no instances available"), ErrorKind.PROVIDER_FAILURE),
    (re.compile(r"(?i)connect|refused|unreachable"), ErrorKind.CONNECTION),
)
"""What error texts say, after the service errors of Affine's runner; anything else was the environment's."""


def kind_of_error(error: object) -> ErrorKind:
    """Return the kind of error that the text speaks of: a provider's, or else the environment's."""
    text = str(error)
    return next((kind for pattern, kind in _KINDS if pattern.search(text)), ErrorKind.ENVIRONMENT)
