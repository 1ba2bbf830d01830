"""The sample store of commands that read what is there: what is misspelt is not what has no samples."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from headgate.campaign import sample_store
from headgate.config import Settings
from headgate.core import errors
from headgate.storage import SampleStore, require_named


def existing_store(settings: Settings) -> SampleStore:
    """Return the sample store that the settings name.

    Raises:
        InvalidInputError: if it is a folder, and there is none.
    """
    if "://" not in settings.store and not Path(settings.store).expanduser().is_dir():
        raise errors.InvalidInputError(
            f"there is no sample store at {settings.store!r}: the folder does not exist",
            next_step="Give the store's folder or address by --store; `headgate run` makes one with its first samples.",
        )
    return sample_store(settings)


async def require_stored(store: SampleStore, *, environments: Iterable[str] = (), campaign: str | None = None) -> None:
    """Return when the store has samples of what was named.

    Raises:
        InvalidInputError: if it has none of an environment, or of the campaign.
    """
    if wanted := frozenset(environments):
        require_named("environment", wanted, {part.environment for part in (await store.visible()).parts})
    if campaign is not None:
        require_named("campaign", {campaign}, set((await store.scan(columns=["campaign"])).frame["campaign"].unique()))
