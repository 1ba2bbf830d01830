"""What a limit belongs to: a model at a provider, and what it is asked for."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from headgate.core import Model

_DEFAULT_PORTS = {"http": 80, "https": 443}


class Domain(StrEnum):
    """What a request asks a model for; each has its own adaptive limit below their common cap."""

    CHAT = "chat"
    EMBEDDING = "embedding"
    IMAGE = "image"
    HEALTHCHECK = "healthcheck"


@dataclass(frozen=True, slots=True)
class ProviderModel:
    """One model at one provider, as the provider counts it. Carries the static cap over all domains and aliases.

    Attributes:
        provider: canonical address, and which account where a key is used; see `provider_of`.
        model: name that the provider knows it by.
    """

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider} {self.model}"


@dataclass(frozen=True, slots=True)
class RequestKey:
    """What one adaptive limit belongs to."""

    account: ProviderModel
    domain: Domain = Domain.CHAT

    def __str__(self) -> str:
        return f"{self.account} {self.domain}"


def provider_of(model: Model) -> str:
    """Return the canonical name of the provider that answers for `model`.

    Quota belongs to an account, not to the name that people give a model: equal addresses in other spellings are one
    provider, and two keys at one address are two. The key itself cannot be read from the name.
    """
    parts = urlsplit(model.base_url)
    host = (parts.hostname or "").lower()
    port = parts.port if parts.port not in (None, _DEFAULT_PORTS.get(parts.scheme)) else None
    address = f"{parts.scheme.lower()}://{host}{f':{port}' if port else ''}{parts.path.rstrip('/')}"
    if not model.api_key:
        return address
    account = hashlib.blake2b(model.api_key.reveal().encode(), digest_size=4, person=b"headgate").hexdigest()
    return f"{address}#{account}"


def request_key(model: Model, domain: Domain = Domain.CHAT) -> RequestKey:
    """Return what a request of `model` is admitted under."""
    return RequestKey(ProviderModel(provider_of(model), model.request_name), domain)
