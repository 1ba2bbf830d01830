"""Who may call a gateway: callers with a token, or any process of this machine if there are no tokens."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from typing import NamedTuple

from headgate.core import Secret
from headgate.core.errors import ForbiddenError, UnauthorizedError
from headgate.elastic.gateway.settings import GatewaySettings, secret_of
from headgate.net import authority
from headgate.net.authority import Authority, Refused
from headgate.net.hosts import HostNames
from headgate.net.refusals import check_binding, token_of
from headgate.net.token_stores import TokenStoreError, open_tokens
from headgate.net.tokens import Refusal, Scope


class Caller(NamedTuple):
    """The caller of a request.

    Attributes:
        name: name of the token; empty without one.
        may_steer: whether the caller may change the pool.
    """

    name: str
    may_steer: bool


class Callers:
    """The tokens of one gateway. They are compared by digest, so that timing reveals nothing about them.

    Args:
        tokens: name -> token that may ask models; without any, every caller may.
        operators: name -> token that may ask models and steer the pool; without any, all that may ask may steer.
        host: address that the gateway listens on.
        kept: identifies callers by the tokens of a database: the scope `submit` may ask models, `read` may see the
            pool, `admin` may also steer it. This object owns it from now on.
    """

    def __init__(
        self,
        tokens: Mapping[str, Secret],
        operators: Mapping[str, Secret],
        host: str = "",
        kept: Authority | None = None,
    ) -> None:
        self._names = HostNames(host)
        self._kept = kept
        self.needs_token = bool(tokens) or kept is not None
        self._everybody = Caller("", may_steer=not operators)
        self._callers = {_digest(token.reveal()): Caller(name, not operators) for name, token in tokens.items()}
        self._callers |= {_digest(token.reveal()): Caller(name, may_steer=True) for name, token in operators.items()}

    @classmethod
    def of(cls, settings: GatewaySettings, environ: Mapping[str, str]) -> Callers:
        """Return the tokens that settings name.

        Raises:
            InvalidElasticError: an environment variable is not set.
            InvalidInputError: `tokens` does not name a database.
            TokenStoreError: the database cannot be opened.
            InvalidSettingError: other machines could reach the gateway, and it requires no token.
        """
        found = {
            place: {name: secret_of(variable, environ, f"gateway.{place}") for name, variable in variables.items()}
            for place, variables in (("tokens_env", settings.tokens_env), ("operators_env", settings.operators_env))
        }
        check_binding(
            settings.host,
            "a gateway",
            is_guarded=bool(settings.tokens_env or settings.tokens),
            next_step="Name gateway.tokens or gateway.tokens_env, or listen on 127.0.0.1.",
        )
        kept = Authority(open_tokens(settings.tokens), rate=None) if settings.tokens else None
        return cls(found["tokens_env"], found["operators_env"], settings.host, kept)

    def close(self) -> None:
        """Close the database; legal twice."""
        if self._kept is not None:
            self._kept.close()

    async def caller(self, headers: Mapping[str, str], scope: Scope = Scope.SUBMIT) -> Caller:
        """Return the caller of a request that needs a scope.

        Raises:
            UnauthorizedError: a token is required, and there is none or an unknown one.
            ForbiddenError: the token lacks the scope, or is a team's.
            TokenStoreError: the tokens of the database cannot be read at present.
            MisdirectedError: no token is required, and the request names another host.
        """
        given = token_of(headers.get("Authorization"))
        if given is not None and (known := self._callers.get(_digest(given))) is not None:
            return known
        if self._kept is not None:
            match await self._kept.identify(given, time.time()):
                case Refused(Refusal.UNAVAILABLE) as refused:
                    raise TokenStoreError(refused.message, next_step=refused.next_step)
                case authority.Caller() as known_there:
                    return _allowed(known_there, scope)
        if self.needs_token:
            raise UnauthorizedError(
                "the request carries no valid token",
                next_step="Send `Authorization: Bearer TOKEN`: OpenAI's clients do when they are given an API key, "
                "commands of `headgate elastic` where HEADGATE_ELASTIC_TOKEN holds the token.",
            )
        self._names.check(headers.get("Host"))
        return self._everybody

    async def operator(self, headers: Mapping[str, str]) -> Caller:
        """Return the caller of a request that changes the pool; raises like `caller`.

        Raises:
            ForbiddenError: the caller may not.
        """
        caller = await self.caller(headers)
        if not caller.may_steer:
            step = "Use a token with the scope `admin`, or one that operators_env names."
            raise ForbiddenError("the token may not steer the pool", next_step=step)
        return caller


def _allowed(known: authority.Caller, scope: Scope) -> Caller:
    """Return the caller with a token of the database; a team's token may ask models, but not see or steer the pool."""
    is_for_all = known.teams is None
    if not known.has(scope) or not (is_for_all or scope is Scope.SUBMIT):
        raise ForbiddenError(f"the token needs the scope `{scope.value}`{' for all teams' * (not is_for_all)}")
    return Caller(known.name, is_for_all and known.has(Scope.ADMIN))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
