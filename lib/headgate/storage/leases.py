"""Who samples a campaign: each process keeps a lease in the store, and reads those of other journals."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from headgate.core import CLOCK_TOLERANCE_S, errors
from headgate.storage.objects import ObjectStore

LEASE_S: Final = 180.0
"""A lease that was not renewed for so long, by the store's clock, has ended: nobody waits longer for a dead process.

One that lies ahead was written by a clock that was wrong, and has ended as well."""


def renew(objects: ObjectStore, key: str, place: str, environments: Collection[str], *, is_new: bool) -> None:
    """Write the lease of a process, and raise `CampaignInUseError` if another journal samples one of the environments.

    Everybody writes before reading, so of two that start at once one at least sees the other. Two that are at it
    already met in an outage of the store: the one whose name comes later gives way. The key is that of `Journal.lease`:
    processes that share a journal share the tasks that it gives, and are no others.
    """
    objects.put_many([(key, "\n".join([place, *environments]).encode())])
    folder, _, name = key.rpartition("/")
    ours = f"{folder}/{name.partition('.')[0]}."
    renewed_at = {one.key: one.modified_at for one in objects.listing(f"{folder}/")}
    now = renewed_at.get(key, 0.0)
    held = (one for one, at in renewed_at.items() if now - LEASE_S < at <= now + CLOCK_TOLERANCE_S)
    others = (one for one in held if not one.startswith(ours))
    for data in objects.get_many([one for one in others if is_new or one < key]):
        place, *sampled = data.decode().split("\n") if isinstance(data, bytes) else [""]  # one has just ended
        if shared := ", ".join(sorted({*sampled} & {*environments})[:3]):
            raise errors.CampaignInUseError(f"another journal, {place}, samples {shared} of this campaign")
