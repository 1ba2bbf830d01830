"""Who calls a gateway: whoever has a token, or everybody of this machine where there are none."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from headgate.core import Secret
from headgate.core.errors import InvalidSettingError, UnauthorizedError
from headgate.elastic.gateway.errors import ForbiddenError, MisdirectedError
from headgate.elastic.gateway.settings import GatewaySettings, is_loopback, secret_of

CHALLENGES: Final = ("Bearer", 'Basic realm="headgate elastic pool"')
"""Programs send a bearer token; browsers ask for a password, which is the token."""

_OTHER_SITES: Final = frozenset({"cross-site", "same-site"})


class Caller(NamedTuple):
    """Who calls.

    Attributes:
        name: of the token; empty where there is none.
        may_steer: whether it may change the pool.
    """

    name: str
    may_steer: bool


class Callers:
    """The tokens of one gateway. Compared by their digests: how long that takes says nothing about them.

    Args:
        tokens: name -> token of whoever may ask models; without any everybody may.
        operators: the same for who may steer the pool, and ask; without any, whoever may ask may steer.
    """

    def __init__(self, tokens: Mapping[str, Secret], operators: Mapping[str, Secret]) -> None:
        self.needs_token = bool(tokens)
        self._everybody = Caller("", may_steer=not operators)
        self._callers = {_digest(token.reveal()): Caller(name, not operators) for name, token in tokens.items()}
        self._callers |= {_digest(token.reveal()): Caller(name, may_steer=True) for name, token in operators.items()}

    @classmethod
    def of(cls, settings: GatewaySettings, environ: Mapping[str, str]) -> Callers:
        """Return the tokens that settings name.

        Raises:
            InvalidElasticError: a variable is not set.
            InvalidSettingError: other machines could reach the gateway, and it asks nobody for a token.
        """
        found = {
            place: {name: secret_of(variable, environ, f"gateway.{place}") for name, variable in variables.items()}
            for place, variables in (("tokens_env", settings.tokens_env), ("operators_env", settings.operators_env))
        }
        if not settings.tokens_env and not is_loopback(settings.host):
            raise InvalidSettingError(
                f"without a token a gateway may only listen on a loopback address (got {settings.host!r})",
                next_step="Name the variable of a token in gateway.tokens_env, or listen on 127.0.0.1.",
            )
        return cls(found["tokens_env"], found["operators_env"])

    def caller(self, headers: Mapping[str, str]) -> Caller:
        """Return who sent a request.

        Raises:
            UnauthorizedError: a token is asked for, and there is none or an unknown one.
            MisdirectedError: none is asked for, and the request names another host: a web page that points a name of
                its own at this machine would reach the port.
        """
        given = headers.get("Authorization")
        if given is not None and (known := self._callers.get(_digest(_token_in(given)))) is not None:
            return known
        if self.needs_token:
            raise UnauthorizedError(
                "the request carries no valid token",
                next_step="Send `Authorization: Bearer TOKEN`; OpenAI's clients do when they are given an API key.",
            )
        if not _names_loopback(headers.get("Host", "")):
            raise MisdirectedError(
                f"without tokens this gateway answers to loopback names only (got {headers.get('Host', '')[:60]!r})"
            )
        return self._everybody

    def operator(self, headers: Mapping[str, str]) -> Caller:
        """Return who sent a request that changes the pool; raises as `caller`.

        Raises:
            ForbiddenError: the caller may not, or a browser says that a page of another site made it ask.
        """
        caller = self.caller(headers)
        if headers.get("Sec-Fetch-Site") in _OTHER_SITES:
            raise ForbiddenError("a page of another site asked for this", next_step="Only programs may steer the pool.")
        if not caller.may_steer:
            raise ForbiddenError("the token may not steer the pool")
        return caller


def _token_in(header: str) -> str:
    """Return the token of an `Authorization` header; of `Basic` it is the password."""
    scheme, _, given = header.partition(" ")
    if scheme.lower() != "basic":
        return given.strip()
    try:
        return base64.b64decode(given, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _names_loopback(host: str) -> bool:
    if host.startswith(("127.0.0.1:", "localhost:")):
        return True
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return False
    return name is not None and is_loopback(name)
