"""Reads the files to replay; an error for a bad line tells its number, the value and the rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
from pydantic import BaseModel, ValidationError

from headgate.core.documents import read_document
from headgate.core.errors import HeadgateError, InvalidInputError
from headgate.core.flaws import flaws_in_words

Line = TypeVar("Line", bound=BaseModel)
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Form:
    """The expected form of a file.

    `what` is its name in messages, such as "trace"; `where` says where to get one and replaces the error's next step.
    """

    what: str
    error: type[HeadgateError]
    where: str | None = None

    def csv(self, path: Path, columns: Sequence[str]) -> pl.DataFrame:
        """Return these columns of a CSV file as text, with surrounding blanks removed."""
        try:
            rows = pl.read_csv(path, infer_schema=False)
        except OSError as error:
            raise self.refusal(
                f"the {self.what} {path} cannot be read: {error.strerror or 'there is no such file'}"
            ) from None
        except pl.exceptions.PolarsError as error:
            raise self.refusal(f"{path} is not a CSV file: {str(error).splitlines()[0]}") from None
        missing = [name for name in columns if name not in rows.columns]
        if missing:
            raise self.refusal(f"{path} lacks the columns {', '.join(missing)} of a {self.what}")
        return rows.select(pl.col(name).str.strip_chars() for name in columns)

    def json_lines(self, path: Path, model: type[Line], item_of: Callable[[Line], Item]) -> list[Item]:
        """Return the items that the lines of a file describe; blank lines are skipped."""

        def item(number: int, line: str) -> Item:
            try:
                return item_of(model.model_validate_json(line))
            except ValidationError as error:
                raise self.error(f"{path}: line {number}: {flaws_in_words(error, model)}") from None
            except HeadgateError as error:
                raise self.error(f"{path}: line {number}: {error.message}") from None

        try:
            lines = path.read_text("utf-8").splitlines()
        except OSError as error:
            raise self.error(f"the {self.what} {path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise self.error(f"{path} is not UTF-8 text (byte {error.start})") from None
        return [item(number, line) for number, line in enumerate(lines, start=1) if line.strip()]

    def check(self, path: Path, written: pl.DataFrame, wrong: pl.Series, name: str, rule: str) -> None:
        """Raise an error for the first row that is marked wrong, or whose mark is null."""
        lines = wrong.fill_null(value=True).arg_true()
        if len(lines):
            raise self.error(f"{path}: line {lines[0] + 2}: {name} must be {rule} (got {written[name][lines[0]]!r})")

    def refusal(self, message: str) -> HeadgateError:
        """Return the error for a file of another form; it tells where to get one of this form."""
        return self.error(message, next_step=self.where)


def yaml_settings(path: Path, what: str, of: str) -> dict[str, Any]:
    """Return the settings that a YAML file holds; messages call the file `what`, and its content settings of `of`.

    Raises:
        InvalidInputError: if the file cannot be read, or does not hold settings.
    """
    written = read_document(path, what=f"the {what}")
    if not isinstance(written, dict):
        raise InvalidInputError(f"{path} holds no settings of {of} (got {type(written).__name__})")
    return written
