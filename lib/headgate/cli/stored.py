"""The sample store of commands that read what is there: a misspelt folder is no empty store."""

from __future__ import annotations

from pathlib import Path

from headgate.campaign import sample_store
from headgate.config import Settings
from headgate.core import errors
from headgate.storage import SampleStore


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
