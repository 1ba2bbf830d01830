"""`headgate jobqueue token create|list|rotate|revoke`: who may use a job queue, and for what."""

from __future__ import annotations

import re
import sys
import time
from contextlib import closing
from functools import partial
from typing import Annotated, Any, Final

from cyclopts import Parameter

from headgate.cli.output import AsJson, counted, print_json, print_table, say, utc_time
from headgate.core import DAY_S, Secret
from headgate.core.audit import record_change
from headgate.core.errors import InvalidInputError, NotFoundError
from headgate.net.authority import REVOCATION_BOUND_S
from headgate.net.token_stores import TokenStore, open_tokens
from headgate.net.tokens import Refusal, Scope, Token, new_token, revoked, rotated

_say = partial(say, stderr=True)

_KEPT_S: Final = 90 * DAY_S
"""Revoked and expired tokens are listed for this long; creating a token then drops them."""

_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": DAY_S}

Database = Annotated[
    str, Parameter(env_var="HEADGATE_JOBQUEUE_DATABASE", help="The job queue: sqlite:///path or postgresql://….")
]
_DEFAULT_DATABASE: Final = "sqlite:///.headgate/jobqueue.db"
_Expires = Annotated[str | None, Parameter(help="Lifetime, such as 12h or 30d; unlimited without it.")]
_Named = Annotated[str, Parameter(help="Id or name of the token.")]


def create(
    name: Annotated[str, Parameter(help="Name of the token, for people.")],
    *,
    scopes: Annotated[str, Parameter(help=f"What it allows, comma separated: {', '.join(Scope)}.")],
    team: Annotated[
        tuple[str, ...], Parameter(help="Only jobs of this team; may be repeated. Default: every team.")
    ] = (),
    pool: Annotated[
        tuple[str, ...],
        Parameter(help="Only servers of this pool; may be repeated. Default: those named as its teams."),
    ] = (),
    most_priority: Annotated[
        int | None, Parameter(help="Highest priority of jobs it submits; 0 for a team's token, else unlimited.")
    ] = None,
    worker: Annotated[str | None, Parameter(help="Only the worker of this name.")] = None,
    expires: _Expires = None,
    database: Database = _DEFAULT_DATABASE,
) -> int:
    """Create a token and print it once: standard output holds the token and nothing else."""
    now = time.time()
    lifetime_s = None if expires is None else _seconds(expires, "--expires")
    token, text = new_token(
        name,
        _scopes(scopes),
        now=now,
        teams=team or None,
        pools=pool or None,
        most_priority=most_priority,
        worker=worker,
        lifetime_s=lifetime_s,
    )
    with _opened(database) as store:
        store.add(token, forget_before=now - _KEPT_S)
    record_change("jobqueue token create", f"{token.name} ({token.token_id})", after=_allowed(token))
    _say(f"token {token.token_id} ({token.name}): {_allowed(token)}; {_state(token, now)}")
    _print_secret(text)
    return 0


def list_(*, database: Database = _DEFAULT_DATABASE, as_json: AsJson = False) -> int:
    """List tokens and what they allow; secrets are not stored."""
    with _opened(database) as store:
        tokens = store.tokens()
    now = time.time()
    if as_json:
        print_json([_document(token, now) for token in tokens])
        return 0
    columns = ("id", "name", "scopes", "teams", "pools", "worker", "created", "state")
    print_table(counted(len(tokens), "token"), columns, [_row(token, now) for token in tokens])
    return 0


def rotate(
    token: _Named,
    *,
    overlap: Annotated[str, Parameter(help="Time for which the old secret still works; 0 ends it at once.")] = "1h",
    expires: _Expires = None,
    database: Database = _DEFAULT_DATABASE,
) -> int:
    """Give a token a new secret and print it once; its id, scopes and teams stay the same."""
    now = time.time()
    overlap_s = _seconds(overlap, "--overlap")
    lifetime_s = None if expires is None else _seconds(expires, "--expires")
    texts: list[Secret] = []

    def change(old: Token) -> Token:
        new, text = rotated(old, now=now, overlap_s=overlap_s, lifetime_s=lifetime_s)
        texts.append(text)
        return new

    with _opened(database) as store:
        new = store.change(_found(store, token, now).token_id, change)
    if new is None:
        raise _unknown(token)
    record_change("jobqueue token rotate", f"{new.name} ({new.token_id})", after=_state(new, now))
    _say(f"token {new.token_id} ({new.name}) has a new secret; {_state(new, now)}")
    _print_secret(texts[-1])
    return 0


def revoke(token: _Named, *, database: Database = _DEFAULT_DATABASE) -> int:
    """Revoke a token for good; running servers refuse it within five seconds."""
    now = time.time()
    with _opened(database) as store:
        ended = store.change(_found(store, token, now).token_id, lambda old: revoked(old, now=now))
    if ended is None:
        raise _unknown(token)
    record_change("jobqueue token revoke", f"{ended.name} ({ended.token_id})", after=_state(ended, now))
    _say(f"token {ended.token_id} ({ended.name}) is revoked; servers refuse it within {REVOCATION_BOUND_S:g} s")
    return 0


def _opened(database: str) -> closing[TokenStore]:
    if database == "memory:":
        raise InvalidInputError(
            "tokens of memory: end with the process that made them", next_step="Name the database of the server."
        )
    return closing(open_tokens(database or _DEFAULT_DATABASE))  # an empty variable counts as unset


def _found(store: TokenStore, given: str, now: float) -> Token:
    """Return the token of this id, or the only one of this name that can still be used."""
    tokens = store.tokens()
    if by_id := [token for token in tokens if token.token_id == given]:
        return by_id[0]
    named = [token for token in tokens if token.name == given]
    usable = [token for token in named if token.ended_by(now) is None]
    match usable or named[-1:]:
        case []:
            raise _unknown(given)
        case [only]:
            return only
        case several:
            ids = ", ".join(token.token_id for token in several)
            raise InvalidInputError(f"{len(several)} tokens are called {given!r}", next_step=f"Give an id: {ids}.")


def _unknown(given: str) -> NotFoundError:
    # A whole token may have been pasted: only its id is shown.
    return NotFoundError(
        f"there is no token {given.partition('.')[0]!r}", next_step="`headgate jobqueue token list` lists them."
    )


def _scopes(given: str) -> list[Scope]:
    names = [name.strip() for name in given.split(",") if name.strip()]
    for name in names:
        if name not in {scope.value for scope in Scope}:
            raise InvalidInputError(f"there is no scope {name!r}", next_step=f"Scopes are {', '.join(Scope)}.")
    return [Scope(name) for name in names]


def _seconds(given: str, option: str) -> float:
    match = re.fullmatch(r"(\d{1,9})([smhd]?)", given.strip())
    if match is None or (not match[2] and match[1].strip("0")):
        raise InvalidInputError(f"{option} takes a time (got {given!r})", next_step="Write 90s, 30m, 12h or 30d.")
    return int(match[1]) * _UNITS.get(match[2], 1.0)


def _allowed(token: Token) -> str:
    teams = "every team" if token.teams is None else ", ".join(sorted(token.teams))
    pools = "" if token.pools is None else f", on servers of {', '.join(sorted(token.pools))}"
    most = "" if token.most_priority is None else f", priority {token.most_priority} at most"
    worker = "" if token.worker is None else f", as worker {token.worker}"
    return f"{', '.join(sorted(token.scopes))} for {teams}{pools}{most}{worker}"


def _state(token: Token, now: float) -> str:
    match token.ended_by(now):
        case Refusal.REVOKED:
            return f"revoked {utc_time(token.revoked_at)}"
        case Refusal.EXPIRED:
            return f"expired {utc_time(token.expires_at)}"
        case _:
            until = "valid" if token.expires_at is None else f"valid until {utc_time(token.expires_at)}"
            overlaps = token.previous_digest and now < token.previous_until
            return f"{until}, its old secret until {utc_time(token.previous_until)}" if overlaps else until


def _row(token: Token, now: float) -> tuple[object, ...]:
    bounds = ("every" if of is None else ", ".join(sorted(of)) for of in (token.scopes, token.teams, token.pools))
    return (token.token_id, token.name, *bounds, token.worker, utc_time(token.created_at), _state(token, now))


def _document(token: Token, now: float) -> dict[str, Any]:
    ended = token.ended_by(now)
    overlaps = token.previous_digest and now < token.previous_until
    return {
        "id": token.token_id,
        "name": token.name,
        "scopes": sorted(token.scopes),
        "teams": None if token.teams is None else sorted(token.teams),
        "pools": None if token.pools is None else sorted(token.pools),
        "most_priority": token.most_priority,
        "worker": token.worker,
        "state": "valid" if ended is None else ended.value,
        "created_at": utc_time(token.created_at),
        "expires_at": utc_time(token.expires_at),
        "revoked_at": utc_time(token.revoked_at),
        "rotated_at": utc_time(token.rotated_at),
        "old_secret_until": utc_time(token.previous_until) if overlaps else None,
    }


def _print_secret(text: Secret) -> None:
    sys.stdout.write(text.reveal() + "\n")
