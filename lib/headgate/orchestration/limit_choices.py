"""The limits named by a command or a flow run: an `AdmissionLimits` block, or a file with the same fields."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from prefect.settings import PREFECT_API_URL

from blocks import AdmissionLimits, loaded_block
from headgate.core import errors
from headgate.core.documents import read_document
from headgate.core.errors import did_you_mean
from headgate.core.flaws import flaws_raised
from headgate.orchestration.slots.broker import SlotBroker

FILE_SUFFIXES: Final = (".yaml", ".yml", ".json")
"""Suffixes that distinguish a file from the name of a block."""


async def limits_of(name: str) -> AdmissionLimits:
    """Return the limits of a file (its name ends with .yaml, .yml or .json), else of the block of this name.

    Raises:
        InvalidInputError: if there is no such file or block, or it breaks a rule.
    """
    if name.endswith(FILE_SUFFIXES):
        return _from_file(Path(name))
    return await loaded_block(AdmissionLimits, name)


async def slots_for(name: str) -> SlotBroker | None:
    """Return a broker that grants slots to a campaign by a block's limits; None if no block is named.

    Missing limits are created. Existing ones keep their number of slots, which may have been changed since.

    Raises:
        InvalidInputError: if there is no such block.
    """
    if not name:
        return None
    block = await limits_of(name)
    return SlotBroker(block.rules(), block.bank_rules(), create_missing=True)


async def shared_slots(name: str) -> SlotBroker | None:
    """Do what `slots_for` does, for a command that shares limits through a running server.

    Raises:
        InvalidInputError: if there is no such block or file, or it breaks a rule.
        OrchestratorUnreachableError: if no Prefect API is configured.
    """
    if name:
        if name.endswith(FILE_SUFFIXES):
            _from_file(Path(name))  # report mistakes in the file before requiring Prefect
        require_api(f"limits {name!r}")
    return await slots_for(name)


def require_api(what: str) -> None:
    """Refuse what needs a running server.

    Without one, Prefect would start a server inside this process, whose limits no other process sees.

    Raises:
        OrchestratorUnreachableError: if no Prefect API is configured.
    """
    if not PREFECT_API_URL.value():
        raise errors.OrchestratorUnreachableError(f"{what} are kept by Prefect, and no Prefect API is configured")


def _from_file(path: Path) -> AdmissionLimits:
    document = read_document(path)
    if not isinstance(document, dict):
        raise errors.InvalidInputError(f"{path} must hold `limits: […]` (got {type(document).__name__})")
    known = ("limits", "block_slots", "lease_s", "outage")
    for key in document:
        if key not in known:
            raise errors.InvalidInputError(f"{path} has an unknown key {key!r}{did_you_mean(str(key), known)}")
    with flaws_raised(AdmissionLimits, errors.InvalidInputError, f"{path}: "):
        return AdmissionLimits(**document)
