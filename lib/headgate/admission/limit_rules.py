"""Which global concurrency limit applies to which provider, how much a process may take, and what grants its slots."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final, Protocol
from urllib.parse import urlsplit

from headgate.admission.gate import RequestAdmission
from headgate.admission.items import ProviderModel
from headgate.core import errors
from headgate.core.events import Emit

Backlog = Callable[[str], int]
"""Returns how many more requests a provider would receive at once if it had more slots."""

NAME_PREFIX: Final = "headgate:"
"""A limit without a name is called by this prefix and the host of its endpoint."""

MOST_SLOTS: Final = 1_000_000
"""The most slots of a limit: more would bound nothing, and a server's database does not store arbitrary integers."""

_BANNED: Final = frozenset("/%&<>#?")
"""Characters that Prefect refuses in names, or that cannot be part of an address."""

_NO_CAPS: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class LimitRule:
    """A limit and what it bounds.

    Attributes:
        name: of the global concurrency limit.
        endpoint: host, host:port or address prefix of its providers; `*` matches any text, `?` any character.
        slots: of all processes together; 0 admits nothing.
        most: most slots of one process; None for all of them.
        model_caps: most requests in flight of a model in one process, by the provider's name for the model.
    """

    name: str
    endpoint: str
    slots: int
    most: int | None = None
    model_caps: Mapping[str, int] = field(default_factory=lambda: _NO_CAPS)

    def covers(self, provider: str) -> bool:
        """Return whether this limit applies to a provider (`headgate.admission.items.provider_of`)."""
        address = provider.partition("#")[0]
        pattern = self.endpoint.lower().rstrip("/")
        glob = pattern.replace("[", "[[]")  # the brackets of an IPv6 address are no set of characters
        if "://" in pattern:
            return fnmatchcase(address, glob) or address.startswith(f"{pattern}/")
        return fnmatchcase(urlsplit(address).netloc, glob)


def limit_rule(
    endpoint: str,
    slots: int,
    *,
    name: str = "",
    most: int | None = None,
    model_caps: Mapping[str, int] = _NO_CAPS,
) -> LimitRule:
    """Return the rule of a limit; without a name it is `headgate:` and the host of the endpoint.

    Raises:
        InvalidInputError: if the endpoint has no host, a pattern has no name, or a number is out of its bounds.
    """
    if not 0 <= slots <= MOST_SLOTS:
        raise errors.InvalidInputError(f"slots of {endpoint!r} must be 0 to {MOST_SLOTS} (got {slots})")
    bounds = {"slots of one process": most} | {f"cap of {model!r}": cap for model, cap in model_caps.items()}
    for what, number in bounds.items():
        if number is not None and number < 1:
            raise errors.InvalidInputError(f"{what} at {endpoint!r} must be >= 1 (got {number})")
    name = name or _name_of(endpoint)
    if bad := sorted(_BANNED & set(name)):
        raise errors.InvalidInputError(
            f"limit name {name!r} has {bad[0]!r}", next_step=f"Leave out {' '.join(sorted(_BANNED))}."
        )
    return LimitRule(name, endpoint, slots, most, MappingProxyType(dict(model_caps)))


def rule_for(provider: str, rules: Sequence[LimitRule]) -> LimitRule | None:
    """Return the first rule that covers a provider."""
    return next((rule for rule in rules if rule.covers(provider)), None)


def _name_of(endpoint: str) -> str:
    host = ""
    with suppress(ValueError):  # brackets without an IPv6 address in them
        host = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}").netloc.lower()
    if not host or re.search(r"[*?]", endpoint):
        raise errors.InvalidInputError(
            f"the limit of endpoint {endpoint!r} has no name",
            next_step="Give it a name: only an endpoint with a host, and without * and ?, can name its limit.",
        )
    return f"{NAME_PREFIX}{host}"


class SlotSource(Protocol):
    """What grants slots to the request admission of this process, e.g. Prefect's global concurrency limits."""

    def follow(self, name: ProviderModel, cap: int) -> int:
        """Return a model's cap in this process, at most `cap`, and start bounding its provider if a limit applies.

        Called before the model is registered, so that no request escapes the bound.
        """

    def serving(
        self, admission: RequestAdmission, emit: Emit, backlog: Backlog | None = None
    ) -> AbstractAsyncContextManager[None]:
        """Return a context in which providers' caps follow the slots; everything is given back when it ends.

        `backlog` reports demand that has made no request yet, since nothing starts at a provider without slots.
        """
