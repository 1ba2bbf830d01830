"""Blocks by their names."""

from __future__ import annotations

from typing import TypeVar

from prefect.blocks.core import Block
from prefect.exceptions import PrefectException

from headgate.core.errors import InvalidInputError

B = TypeVar("B", bound=Block)


async def loaded_block(kind: type[B], name: str, refusal: type[InvalidInputError] = InvalidInputError) -> B:
    """Return the block `name` of a kind.

    Raises:
        InvalidInputError: as `refusal` says, if there is none, or the API does not answer.
    """
    try:
        return await kind.aload(name)
    except (ValueError, OSError, PrefectException) as error:
        raise refusal(
            f"block {kind.get_block_type_slug()}/{name} cannot be loaded: {error}",
            next_step="`prefect block ls` lists the blocks; docs/reference/prefect.md says how one is made.",
        ) from error
