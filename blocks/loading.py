"""Loading blocks by name."""

from __future__ import annotations

from typing import TypeVar

from prefect.blocks.core import Block
from prefect.exceptions import PrefectException

from headgate.core.errors import InvalidInputError

B = TypeVar("B", bound=Block)


async def loaded_block(kind: type[B], name: str, refusal: type[InvalidInputError] = InvalidInputError) -> B:
    """Return the block of type `kind` named `name`.

    Raises:
        InvalidInputError: of the class `refusal`, if there is no such block or the API does not answer.
    """
    try:
        return await kind.aload(name)
    except (ValueError, OSError, PrefectException) as error:
        raise refusal(
            f"block {kind.get_block_type_slug()}/{name} cannot be loaded: {error}",
            next_step="`prefect block ls` lists the blocks; docs/reference/prefect.md shows how to create one.",
        ) from error
