"""The file form of a price table: prices by model and lane, with their date and source."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from headgate.core import LanePrice, Price, Prices
from headgate.core.documents import read_document
from headgate.core.errors import InvalidSettingError
from headgate.core.flaws import flaws_raised

_NEXT: Final = (
    "A table of prices has a date, a source, and prices: a list of model, input and output per million tokens, and "
    "where they differ cached_input, reasoning, batch_discount, or another entry with lane: batch."
)

_Amount = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


class PriceRow(BaseModel):
    """Prices of a model's tokens in a lane, in the currency per million tokens.

    Attributes:
        model: key, name or served name.
        lane: `now`, or `batch` for requests in batches.
        input: price of prompt tokens.
        output: price of completion tokens.
        cached_input: price of prompt tokens that the provider had in its cache; like `input` when absent.
        reasoning: price of completion tokens spent on reasoning; like `output` when absent.
        batch_discount: share by which batches lower each of these prices, from 0 to 1; only in an entry for `now`.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    model: str = Field(min_length=1)
    lane: Literal["now", "batch"] = "now"
    input: _Amount
    output: _Amount
    cached_input: _Amount | None = None
    reasoning: _Amount | None = None
    batch_discount: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None

    @property
    def price(self) -> LanePrice:
        """The same prices in whole numbers."""
        return LanePrice.of(self.input, self.output, cached=self.cached_input, reasoning=self.reasoning)


class PriceTable(BaseModel):
    """A file of prices, all in one currency.

    Attributes:
        date: date of the prices, not in the future.
        source: their origin, for readers.
        prices: at most one entry for each model and lane.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    date: date
    source: str = Field(min_length=1)
    prices: list[PriceRow] = Field(min_length=1)


def read_prices(path: str, today: date | None = None) -> Prices:
    """Return the prices in a YAML or JSON file, which the setting `prices` names; empty prices for an empty path.

    Args:
        path: path of the file.
        today: the present day by default; a later date in the file is refused.

    Raises:
        InvalidSettingError: if it cannot be read, or breaks a rule.
    """
    if not path:
        return Prices()
    written = read_document(Path(path).expanduser(), InvalidSettingError, what="the table of prices", next_step=_NEXT)
    with flaws_raised(PriceTable, InvalidSettingError, f"{path}: ", next_step=_NEXT):
        table = PriceTable.model_validate(written)
    # In some time zone it is already tomorrow.
    if table.date > (today or datetime.now(UTC).date()) + timedelta(days=1):
        raise InvalidSettingError(
            f"{path}: date must not be in the future (got {table.date})",
            next_step="Give the day on which the prices were looked up.",
        )
    told = f"{path} of {table.date} ({table.source})"
    return Prices(_by_model(path, table.prices), told)


def _by_model(path: str, rows: list[PriceRow]) -> dict[str, Price]:
    lanes: dict[str, dict[str, LanePrice]] = {}
    for row in rows:
        found: dict[str, LanePrice] = {row.lane: row.price}
        if row.batch_discount is not None:
            if row.lane == "batch":
                raise InvalidSettingError(
                    f"{path}: batch_discount of {row.model!r} belongs in its entry for lane now (got lane batch)",
                    next_step="State the prices of batches themselves, or their discount beside the ordinary prices.",
                )
            found["batch"] = row.price.less(row.batch_discount)
        if twice := lanes.setdefault(row.model, {}).keys() & found.keys():
            raise InvalidSettingError(
                f"{path}: a model must have one price in each lane (got two of {row.model!r} in {min(twice)})",
                next_step="Remove one of the two entries.",
            )
        lanes[row.model] |= found
    return {model: Price(**found) for model, found in lanes.items()}
