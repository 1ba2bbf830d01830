"""Faults on request: a plan of what goes wrong at the local endpoint, when, and for which models."""

from __future__ import annotations

import hmac
import math
import re
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from headgate.core import errors, unit_hash
from headgate.core.documents import document_of, read_document
from headgate.core.flaws import flaws_raised

_Share = Annotated[float, Field(ge=0, le=1)]
_Seconds = Annotated[float, Field(ge=0)]


class Rule(BaseModel):
    """What every rule has: the models and the time that it applies to.

    Attributes:
        model: a model's name, or a pattern with `*`.
        probability: share of the requests that it applies to, drawn by the plan's seed.
        from_s: seconds after the model's first request at which the rule begins.
        until_s: seconds after that request at which it ends; never if absent.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    model: str = "*"
    probability: _Share = 1.0
    from_s: _Seconds = 0.0
    until_s: Annotated[float, Field(gt=0)] | None = None

    def concerns(self, model: str, elapsed_s: float) -> bool:
        """Return whether the rule applies to `model`, `elapsed_s` seconds after its first request."""
        ends_s = math.inf if self.until_s is None else self.until_s
        return self.from_s <= elapsed_s < ends_s and fnmatchcase(model, self.model)


class RateLimit(Rule):
    """429 with Retry-After beyond `concurrency` requests at once, or `per_second` with bursts of one second's worth."""

    kind: Literal["rate_limit"] = "rate_limit"
    concurrency: Annotated[int, Field(ge=1)] | None = None
    per_second: Annotated[float, Field(gt=0)] | None = None
    retry_after_s: _Seconds = 1.0

    @model_validator(mode="after")
    def _limits_something(self) -> Self:
        if self.concurrency is None and self.per_second is None:
            raise ValueError("a rate_limit needs concurrency or per_second")
        return self


class Failure(Rule):
    """An answer with an error status."""

    kind: Literal["error"] = "error"
    status: Annotated[int, Field(ge=400, le=599)] = 503
    retry_after_s: _Seconds | None = None


class Slow(Rule):
    """Latency drawn from a log-normal distribution before the answer begins."""

    kind: Literal["slow"] = "slow"
    mean_s: Annotated[float, Field(gt=0)]
    cv: _Seconds = 0.5


class Hang(Rule):
    """No answer until the client disconnects."""

    kind: Literal["hang"] = "hang"


class Cut(Rule):
    """The answer ends after `share` of it: the connection closes, or it ends as if complete (`clean`)."""

    kind: Literal["cut"] = "cut"
    share: _Share = 0.5
    ending: Literal["reset", "clean"] = "reset"


class WrongKey(Rule):
    """401 unless the request carries this key."""

    kind: Literal["key"] = "key"
    key: Annotated[str, Field(min_length=1)]


class Garbage(Rule):
    """Status 200 with a body that is not an answer, or one of megabytes."""

    kind: Literal["garbage"] = "garbage"
    form: Literal["invalid_utf8", "empty", "not_json", "no_choices", "huge"] = "invalid_utf8"
    size_bytes: Annotated[int, Field(ge=1, le=2**30)] = 10_000_000


AnyRule = Annotated[RateLimit | Failure | Slow | Hang | Cut | WrongKey | Garbage, Field(discriminator="kind")]


class FaultPlan(BaseModel):
    """What goes wrong. The same plan and the same requests in the same order give the same faults.

    All rules that apply to a request are evaluated in order: latencies add up, the first refusal or fault decides.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    seed: int = 0
    rules: tuple[AnyRule, ...] = ()

    @classmethod
    def parse(cls, text: str) -> FaultPlan:
        """Return the plan that `text` describes.

        Args:
            text: JSON or YAML of the plan, the path of a `.yaml`, `.yml` or `.json` file with it, or the short form
                `kind:name=value,name=value;kind:…`, e.g. `error:probability=0.1,status=503;slow:mean_s=0.3`.

        Raises:
            InvalidInputError: if the plan is not valid; the message names the rule and the value.
        """
        with flaws_raised(cls, errors.InvalidInputError, "fault plan: ", next_step=_HELP):
            return cls.model_validate(_document(text.strip()))


_HELP = "Kinds are rate_limit, error, slow, hang, cut, key and garbage; docs/reference/models.md lists their fields."
_SHORT = re.compile(r"(?:seed=\d+|[a-z_]+(?::[^;]*)?)(?:;|\Z)")


def _document(text: str) -> Any:
    if not text:
        return {}
    if text.endswith((".yaml", ".yml", ".json")) and "\n" not in text:
        document = read_document(Path(text), what="fault plan", next_step=_HELP)
    elif _SHORT.match(text) and not text.startswith(("rules:", "seed:")):
        return _short_form(text)
    else:
        try:
            document = document_of(text.encode())
        except ValueError as error:
            raise errors.InvalidInputError(f"the fault plan cannot be read: {error}", next_step=_HELP) from None
    return {"rules": document} if isinstance(document, list) else document


def _short_form(text: str) -> dict[str, Any]:
    plan: dict[str, Any] = {"rules": []}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        if part.startswith("seed="):
            plan["seed"] = part.removeprefix("seed=")
            continue
        kind, _, fields = part.partition(":")
        pairs = [pair.partition("=") for pair in filter(None, fields.split(","))]
        plan["rules"].append({"kind": kind} | {name.strip(): value.strip() for name, _, value in pairs})
    return plan


_NORMAL: Final = NormalDist()


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer normally, after `after_s` seconds."""

    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with an error status."""

    status: int
    retry_after_s: float | None
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Break:
    """Answer incorrectly, as the rule says: hang, cut the answer, or send garbage."""

    rule: Hang | Cut | Garbage
    after_s: float = 0.0


Verdict = Answer | Refuse | Break


class FaultSchedule:
    """The faults of one endpoint. Owned by it; `begin` and `end` frame each request.

    Invariant: `in_flight` counts requests per model begun with `Answer` or `Break` and not ended; it is never negative.
    """

    def __init__(self, plan: FaultPlan) -> None:
        self._plan = plan
        self._first_at: dict[str, float] = {}
        self._asked: Counter[str] = Counter()
        self._in_flight: Counter[str] = Counter()
        self._buckets: dict[tuple[int, str], _Bucket] = {}

    def begin(self, model: str, key: str, now: float) -> Verdict:
        """Return what happens to the next request for `model`, sent with `key`.

        After an `Answer` or a `Break` the caller must call `end(model)` once.
        """
        self._first_at.setdefault(model, now)
        number = self._asked[model]
        self._asked[model] += 1
        verdict = self._verdict(model, key, number, now)
        if not isinstance(verdict, Refuse):
            self._in_flight[model] += 1
        return verdict

    def end(self, model: str) -> None:
        """Count a request as no longer in flight."""
        self._in_flight[model] -= 1

    def validate(self) -> None:
        """Assert the invariants."""
        assert all(count >= 0 for count in self._in_flight.values()), self._in_flight

    def _verdict(self, model: str, key: str, number: int, now: float) -> Verdict:
        after_s, elapsed_s = 0.0, now - self._first_at[model]
        for position, rule in enumerate(self._plan.rules):
            if not rule.concerns(model, elapsed_s):
                continue
            if rule.probability < 1 and self._draw(position, model, number, "strikes") >= rule.probability:
                continue
            match rule:
                case Slow():
                    after_s += log_normal(rule.mean_s, rule.cv, self._draw(position, model, number, "latency"))
                case Failure():
                    return Refuse(rule.status, rule.retry_after_s, after_s)
                case WrongKey() if not hmac.compare_digest(key.encode(), rule.key.encode()):
                    return Refuse(401, None)
                case RateLimit() if self._is_over(position, rule, model, now):
                    return Refuse(429, rule.retry_after_s)
                case Hang() | Cut() | Garbage():
                    return Break(rule, after_s)
                case _:
                    pass
        return Answer(after_s)

    def _draw(self, position: int, model: str, number: int, what: str) -> float:
        return unit_hash(str(self._plan.seed), str(position), model, str(number), what)

    def _is_over(self, position: int, rule: RateLimit, model: str, now: float) -> bool:
        if rule.concurrency is not None and self._in_flight[model] >= rule.concurrency:
            return True
        if rule.per_second is None:
            return False
        bucket = self._buckets.setdefault((position, model), _Bucket(max(1.0, rule.per_second), now))
        return not bucket.take(rule.per_second, now)


class _Bucket:
    """A token bucket that holds one second's worth of tokens, but at least one."""

    __slots__ = ("_at", "_size", "_tokens")

    def __init__(self, size: float, now: float) -> None:
        self._size = self._tokens = size
        self._at = now

    def take(self, per_second: float, now: float) -> bool:
        self._tokens = min(self._size, self._tokens + (now - self._at) * per_second)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def log_normal(mean: float, cv: float, u: float) -> float:
    """Return the log-normal variate with this mean and coefficient of variation at probability `u` in [0, 1)."""
    if cv == 0:
        return mean
    variance = math.log1p(cv * cv)
    return math.exp(
        math.log(mean) - variance / 2 + math.sqrt(variance) * _NORMAL.inv_cdf(min(max(u, 1e-12), 1 - 1e-12))
    )
