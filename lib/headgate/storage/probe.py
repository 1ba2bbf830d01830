"""What a place for samples can do, found by trying it at start-up."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import Final

from headgate.core import errors, require_agreement
from headgate.storage.layout import PROBE
from headgate.storage.objects import ObjectStore

_FIRST: Final = b"first"


@dataclass(frozen=True, slots=True)
class Probe:
    """A place for samples.

    Attributes:
        url: its address.
        conditional_puts: whether it refuses to create an object twice. Without that a batch is still stored once, as a
            second try writes the same objects; but samples cannot be compacted.
        warning: a sentence for the log when something is amiss, None else.
    """

    url: str
    conditional_puts: bool
    warning: str | None


def probe(objects: ObjectStore) -> Probe:
    """Return what the place can do; leaves nothing behind.

    Raises:
        errors.StoreNotWritableError: if nothing can be written.
        errors.StoreError: if it does not answer, or gives back something else than was written.
        errors.ClockDisagreesError: if its clock says another time than this machine's.
    """
    key = f"{PROBE}{secrets.token_hex(8)}"
    was_created = objects.create(key, _FIRST)
    try:
        written_at = [found.modified_at for found in objects.listing(PROBE) if found.key == key]
        if written_at:
            require_agreement(time.time(), written_at[0], f"the sample store {objects.url}")
        was_replaced = objects.create(key, b"second")
        if not was_created or objects.get(key) != (b"second" if was_replaced else _FIRST):
            raise errors.StoreError(f"the sample store {objects.url} does not give back what was written to it")
    finally:
        objects.delete_many([key])
    warning = None
    if was_replaced:
        warning = f"{objects.url} ignores If-None-Match: samples are stored once all the same, but cannot be compacted"
    return Probe(objects.url, not was_replaced, warning)
