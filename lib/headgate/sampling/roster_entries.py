"""The file form of a roster: every rule is checked on reading, and all problems are reported at once."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from headgate.core import ENGINE_PRIORITY, Launch, Model, ModelBudget, Price, Program, Secret, Serving, errors, redacted
from headgate.core.addresses import has_user, is_metadata_host
from headgate.core.errors import did_you_mean
from headgate.core.flaws import flaws_in_words, rule_in_words
from headgate.core.rates import NO_RATES, ModelRates, RateLimits

_REPLICAS: Final = re.compile(r"(\d{1,3})(?:-(\d{1,3}))?", re.ASCII)
_ADDRESS: Final = re.compile(r"[a-z][a-z0-9+.-]*://")


class LaunchForm(BaseModel):
    """The fields that describe an engine started from weights, shared by all documents that have them.

    Attributes:
        weights: file, folder or name on a hub, as the engine accepts it; or an address `s3://…`.
        slots: requests that each engine runs at once.
        options: further flags of the engine.
        command: how the engine `command` is started; `{port}`, `{weights}` and `{name}` are filled in.
        environ: environment variables of the engine.
        start_s: seconds within which the engine must answer after its start.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    weights: str = ""
    slots: int = Field(8, ge=1, le=100_000)
    options: dict[str, bool | int | float | str] = Field(default_factory=dict)
    command: str = ""
    environ: dict[str, str] = Field(default_factory=dict)
    start_s: float = Field(600.0, gt=0, allow_inf_nan=False)

    def launch(self, program: Program, name: str, *, gpus: int, weights: str) -> Launch:
        """Return how an engine is started; `name` is the model's name in requests.

        Raises:
            InvalidInputError: if something that the engine needs is missing.
        """
        same = self.model_dump(include={"slots", "options", "command", "environ", "start_s"})
        return Launch(program, weights, name, gpus, **same)


class ServeSection(LaunchForm):
    """How a model is served, as written in a roster.

    Attributes:
        engine: the program: `llama.cpp`, `vllm`, `sglang`, or `command` for a command line of your own.
        replicas: minimum and maximum number of awake engines, such as `0-2`; a single number sets both.
        priority: among engines that wait for resources, higher goes first.
        pool: placement pool on a Ray cluster; the one in the settings when empty.
        labels: labels for the pool's preemption rules.
        idle_s: seconds without due requests after which an engine sleeps.
    """

    engine: Program
    gpus: int = Field(0, ge=0, le=1_024)
    replicas: tuple[int, int] = (0, 1)
    priority: float = Field(ENGINE_PRIORITY, allow_inf_nan=False)
    pool: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    idle_s: float = Field(30.0, gt=0, allow_inf_nan=False)

    @field_validator("replicas", mode="before")
    @classmethod
    def _be_a_range(cls, written: Any) -> tuple[int, int]:
        found = None if isinstance(written, bool) else _REPLICAS.fullmatch(str(written).replace(" ", ""))
        least = int(found[1]) if found else 1
        most = int(found[2] or found[1]) if found else 0
        if most < max(least, 1):
            raise ValueError("must be a number of engines >= 1, or the fewest and the most as 0-2")
        return least, most

    def serving(self, name: str) -> Serving:
        """Return the section in the form that a run takes; `name` is the model's name in requests.

        Raises:
            InvalidInputError: if something that the engine needs is missing.
        """
        launch = self.launch(self.engine, name, gpus=self.gpus, weights=_at_hand(self.weights))
        least, most = self.replicas
        return Serving(launch, least, most, self.priority, self.pool, self.labels, self.idle_s)


def _at_hand(weights: str) -> str:
    """Return weights with an absolute path, valid in any working directory; a name on a hub stays unchanged."""
    if not weights or _ADDRESS.match(weights):
        return weights
    path = Path(weights).expanduser()
    is_path = path.exists() or weights.startswith((".", "~")) or path.suffix == ".gguf"
    return str(path.absolute()) if is_path else weights


_RESERVED_OPTIONS: Final = frozenset({"model", "messages"})
_OWN_OPTIONS: Final = ("headgate_task_header",)
_MAX_KEY_BYTES: Final = 64 * 1024
_SHOWN_PROBLEMS: Final = 50


class RateSection(BaseModel):
    """Limits per minute as written in a roster; see `headgate.core.rates.RateLimits`. None of them may be 0."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    requests_per_minute: int | None = Field(None, ge=1)
    input_tokens_per_minute: int | None = Field(None, ge=1)
    output_tokens_per_minute: int | None = Field(None, ge=1)
    tokens_per_minute: int | None = Field(None, ge=1)

    @property
    def limits(self) -> RateLimits:
        """The limits in the form that a model takes."""
        return RateLimits(*(getattr(self, name) for name in RateLimits._fields))


class RosterEntry(RateSection):
    """One model as written in a roster. Its budgets and prices are those of `headgate.core.ModelBudget`.

    Its limits per minute apply to the model at its endpoint.

    Attributes:
        name: name of the model in settings and reports.
        revision: version of its weights or prompt; another revision is another model.
        base_url: OpenAI-compatible endpoint, up to and including `/v1`.
        serve: instead of `base_url`, how Headgate serves the model from weights; see `ServeSection`.
        model: the endpoint's name for the model; `name` when absent.
        api_key: where its key is: `env:NAME` or `file:/path`.
        uid: its number; its position in the roster, from 0, when absent.
        weight: relative share of the workers under contention.
        max_parallel: maximum requests in flight; for a served model, by default what its engines run at once.
        options: further fields of the chat request.
        tools: how it gets an environment's tools: `native` in fields of the request, as `text`, or `auto`.
        key_limits: limits per minute of all models at the same address with the same key.
        organisation: one of the roster's `organisations`, whose limits per minute it shares.
        lane: the lane of its requests that can wait, overriding the setting `lanes`.
    """

    name: str
    revision: str = "main"
    base_url: str = ""
    serve: dict[str, Any] | None = None
    model: str = ""
    api_key: str = ""
    uid: int | None = Field(None, ge=0, lt=2**31)
    weight: float = Field(1.0, gt=0, le=1_000_000, allow_inf_nan=False)
    max_parallel: int = Field(8, ge=1, le=100_000)
    options: dict[str, Any] = Field(default_factory=dict)
    tools: Literal["auto", "native", "text"] = "auto"
    key_limits: RateSection = RateSection()
    organisation: str = ""
    sample_tokens: int | None = Field(None, ge=32)
    sample_completion_tokens: int | None = Field(None, ge=32)
    sample_time_s: float | None = Field(None, gt=0, allow_inf_nan=False)
    daily_tokens: int | None = Field(None, ge=1)
    daily_requests: int | None = Field(None, ge=1)
    daily_cost: float | None = Field(None, gt=0, allow_inf_nan=False)
    lane: Literal["", "now", "batch", "auto"] = ""
    price_in: float = Field(0.0, ge=0, allow_inf_nan=False)
    price_out: float = Field(0.0, ge=0, allow_inf_nan=False)
    price_cached_in: float | None = Field(None, ge=0, allow_inf_nan=False)
    batch_discount: float | None = Field(None, ge=0, le=1, allow_inf_nan=False)

    @property
    def price(self) -> Price | None:
        """The price stated in the entry; None if it states none, so that a price table may supply it."""
        if not {"price_in", "price_out"} & self.model_fields_set:
            return None
        return Price.of(self.price_in, self.price_out, cached=self.price_cached_in, batch_discount=self.batch_discount)


ENTRY_FIELDS: Final = tuple(RosterEntry.model_fields)
DEFAULT_FIELDS: Final = tuple(name for name in ENTRY_FIELDS if name not in {"name", "uid"})
FILE_FIELDS: Final = ("defaults", "models", "organisations")


@dataclass(frozen=True, slots=True)
class KeyRules:
    """Where the keys of a roster may come from.

    Attributes:
        environ: environment variables that `env:NAME` refers to.
        variable_prefix: prefix that the names of these variables must have.
        allow_files: whether `file:/path` is read.
        allow_programs: whether entries may name programs that serve their models.
        allow_plain: whether a key may be written in the roster itself.
    """

    environ: Mapping[str, str]
    variable_prefix: str = ""
    allow_files: bool = True
    allow_programs: bool = True
    allow_plain: bool = False

    def key(self, reference: str) -> Secret:
        """Return the key that `reference` names.

        Raises:
            ValueError: naming the rule that it breaks, without the key.
        """
        scheme, colon, rest = reference.partition(":")
        if not reference:
            return Secret("")
        if colon and scheme == "env":
            return _usable_key(self._variable(rest), f"variable {rest}")
        if colon and scheme == "file":
            return _usable_key(self._file(rest), f"file {rest}")
        if self.allow_plain:
            return _usable_key(reference, "the key")
        raise ValueError("a key in plain text is refused (got [redacted]); write env:NAME or file:/path")

    def _variable(self, name: str) -> str:
        if not name.startswith(self.variable_prefix):
            raise ValueError(
                f"a remote roster may name only variables that begin with {self.variable_prefix} (got {name})"
            )
        if name not in self.environ:
            raise ValueError(f"environment variable {name} is not set")
        return self.environ[name]

    def _file(self, name: str) -> str:
        if not self.allow_files:
            raise ValueError(f"a remote roster may not name files (got file:{name})")
        path = Path(name)
        if not path.is_absolute():
            raise ValueError(f"the path of a key must be absolute (got file:{name})")
        try:
            with path.open("rb") as opened:
                return opened.read(_MAX_KEY_BYTES).decode("ascii").strip()
        except OSError as error:
            raise ValueError(f"file {name} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ValueError(f"file {name} holds no valid key: a key is printable ASCII") from None


def read_entries(document: object, source: str, keys: KeyRules) -> tuple[Model, ...]:
    """Return the models of a roster's parsed document.

    Raises:
        InvalidRosterError: listing every problem with its file, entry, field, value and rule.
    """
    problems: list[str] = []
    models = tuple(_models(document, keys, problems))
    if not problems:
        _check_together(models, problems)
    if problems:
        count = len(problems)
        listed = "".join(f"\n  {line}" for line in problems[:_SHOWN_PROBLEMS])
        more = f"\n  and {count - _SHOWN_PROBLEMS} more" if count > _SHOWN_PROBLEMS else ""
        raise errors.InvalidRosterError(f"{source}: {count} {'problem' if count == 1 else 'problems'}:{listed}{more}")
    return models


def base_url_problem(url: str) -> str | None:
    """Return the rule that an endpoint's address breaks, None when it breaks none."""
    shown = f"(got {redacted(url, limit_chars=200)!r})"
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        return f"is not a valid address: {error} {shown}"
    if parts.scheme not in {"http", "https"} or not host or any(c <= " " or c == "\x7f" for c in url):
        return f"must be http://host/v1 or https://host/v1 {shown}"
    if has_user(url):
        return "must not contain a user or password; a key belongs in api_key"
    if parts.query or parts.fragment:
        return f"must end with the path, without ? or # {shown}"
    if parts.path.rstrip("/").endswith(("/chat/completions", "/completions")):
        return f"must end where the API begins, usually at /v1 {shown}"
    if is_metadata_host(host):
        return f"is a link-local or metadata address, where machines keep credentials, never a model {shown}"
    return None


def _models(document: object, keys: KeyRules, problems: list[str]) -> Iterator[Model]:
    if not isinstance(document, dict):
        problems.append(f"roster: must be a mapping with `models:`, a list of entries (got {_shown(document)})")
        return
    _refuse_unknown("roster", document, FILE_FIELDS, problems)
    defaults = document.get("defaults") or {}
    if not isinstance(defaults, dict):
        problems.append(f"defaults: must be a mapping (got {_shown(defaults)})")
        defaults = {}
    _refuse_unknown("defaults", defaults, DEFAULT_FIELDS, problems)
    entries = document.get("models")
    if not isinstance(entries, list) or not entries:
        problems.append(f"models: must be a list with at least one entry (got {_shown(entries)})")
        return
    organisations = dict(_organisations(document.get("organisations") or {}, problems))
    for position, entry in enumerate(entries):
        model = _model(position, entry, defaults, keys, organisations, problems)
        if model is not None:
            yield model


def _organisations(document: object, problems: list[str]) -> Iterator[tuple[str, RateLimits]]:
    if not isinstance(document, dict):
        problems.append(f"organisations: must be a mapping of names to limits (got {_shown(document)})")
        return
    for name, given in document.items():
        checked = _checked(f"organisations, {name}", RateSection, given, problems)
        if checked is not None:
            yield str(name), checked.limits


def _model(
    position: int,
    entry: object,
    defaults: dict[Any, Any],
    keys: KeyRules,
    organisations: Mapping[str, RateLimits],
    problems: list[str],
) -> Model | None:
    if not isinstance(entry, dict):
        problems.append(f"entry {position + 1}: must be a mapping of name and base_url or serve (got {_shown(entry)})")
        return None
    place = f"entry {position + 1} ({entry['name']})" if isinstance(entry.get("name"), str) else f"entry {position + 1}"
    before = len(problems)
    _refuse_unknown(place, entry, ENTRY_FIELDS, problems)
    merged = _merged(entry, defaults)
    if not merged.get("base_url") and merged.get("serve") is None:
        problems.append(f"{place}, base_url: is missing; every entry needs one, or `serve`")
    checked = _checked(place, RosterEntry, merged, problems)
    if checked is None:
        return None
    api_key = Secret("")
    try:
        api_key = keys.key(checked.api_key)
    except ValueError as error:
        problems.append(f"{place}, api_key: {error}")
    serve = _serving(place, checked, keys, problems)
    if checked.base_url and (problem := base_url_problem(checked.base_url)) is not None:
        problems.append(f"{place}, base_url: {problem}")
    _check_options(place, checked.options, problems)
    if checked.organisation and checked.organisation not in organisations:
        hint = _nearest(checked.organisation, organisations) if organisations else "; the roster has none"
        problems.append(f"{place}, organisation: {checked.organisation!r:.60} is not in organisations{hint}")
    unpriced = {"price_in", "price_out"} - checked.model_fields_set
    priced = {"price_in", "price_out", "price_cached_in", "batch_discount"} & checked.model_fields_set
    stated = sorted(name for name in priced if getattr(checked, name) is not None)
    if unpriced and stated:
        got = "neither" if len(unpriced) == 2 else f"no {unpriced.pop()}; 0 where these tokens cost nothing"
        problems += [f"{place}, {name}: needs price_in and price_out (got {got})" for name in stated]
    is_stated = "max_parallel" in checked.model_fields_set
    try:
        model = Model(
            name=checked.name,
            revision=checked.revision,
            base_url=checked.base_url.rstrip("/"),
            served_name=checked.model,
            api_key=api_key,
            uid=position if checked.uid is None else checked.uid,
            weight=checked.weight,
            max_parallel=checked.max_parallel if serve is None or is_stated else serve.launch.slots * serve.most,
            options=tuple(checked.options.items()),
            budget=ModelBudget(**{each.name: getattr(checked, each.name) for each in fields(ModelBudget)}),
            rates=ModelRates(
                checked.limits,
                checked.key_limits.limits,
                checked.organisation,
                organisations.get(checked.organisation, NO_RATES),
            ),
            serve=serve,
            tools=checked.tools,
            lane=checked.lane,
        )
    except errors.InvalidNameError as error:
        problems.append(f"{place}: {error}")
        return None
    return model if len(problems) == before else None


def _serving(place: str, checked: RosterEntry, keys: KeyRules, problems: list[str]) -> Serving | None:
    """Return how a model is served, None if it has an endpoint instead."""
    if checked.serve is None:
        return None
    if checked.base_url or checked.api_key:
        problems.append(f"{place}, serve: replaces base_url and api_key; leave those out")
    if not keys.allow_programs:
        problems.append(f"{place}, serve: a remote roster may not start programs; put the entry in a local roster file")
        return None
    try:
        return ServeSection.model_validate(checked.serve).serving(checked.model or checked.name)
    except ValidationError as error:
        problems.append(f"{place}, serve: {flaws_in_words(error, ServeSection)}")
    except errors.InvalidInputError as error:
        problems.append(f"{place}, serve: {error.message}")
    return None


def _merged(entry: dict[Any, Any], defaults: dict[Any, Any]) -> dict[str, Any]:
    other = {"base_url": "serve", "serve": "base_url"}  # an entry's own field overrides a default for the other one
    kept = {
        k: v for k, v in defaults.items() if other.get(k) not in entry and not (k == "api_key" and "serve" in entry)
    }
    merged = {k: v for k, v in (kept | entry).items() if k in ENTRY_FIELDS}
    for name in ("options", "serve"):
        ours, theirs = kept.get(name), entry.get(name)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            merged[name] = ours | theirs
    return merged


Section = TypeVar("Section", bound=RateSection)


def _checked(place: str, section: type[Section], fields: object, problems: list[str]) -> Section | None:
    try:
        return section.model_validate(fields)
    except ValidationError as error:
        for problem in error.errors():
            name = ".".join(str(part) for part in problem["loc"])
            if problem["type"] == "missing":
                problems.append(f"{place}, {name}: is missing; every entry needs one")
            elif problem["type"] == "extra_forbidden":
                hint = _nearest(str(problem["loc"][-1]), RateSection.model_fields)
                problems.append(f"{place}, {name}: is unknown{hint}")
            else:
                given = "[redacted]" if name == "api_key" else _shown(problem["input"])
                hint = "; put it in quotes" if problem["type"] == "string_type" else ""
                problems.append(f"{place}, {name}: {rule_in_words(problem)} (got {given}){hint}")
    return None


def _check_options(place: str, options: dict[str, Any], problems: list[str]) -> None:
    for name, value in options.items():
        where = f"{place}, options.{name}"
        if name in _RESERVED_OPTIONS:
            problems.append(f"{where}: is set by Headgate itself")
        elif name.startswith("headgate_") and name not in _OWN_OPTIONS:
            problems.append(f"{where}: is unknown{_nearest(name, _OWN_OPTIONS)}")
        elif name in {*_OWN_OPTIONS, "stream"} and not isinstance(value, bool):
            problems.append(f"{where}: must be true or false (got {_shown(value)})")
        elif not _is_json(value):
            problems.append(f"{where}: must be a JSON value (got {_shown(value)})")


def _check_together(models: tuple[Model, ...], problems: list[str]) -> None:
    keys: dict[str, int] = {}
    uids: dict[int, int] = {}
    for number, model in enumerate(models, start=1):
        if (other := keys.setdefault(model.key, number)) != number:
            problems.append(f"entry {number} ({model.name}): has the name and revision {model.key} of entry {other}")
        if (other := uids.setdefault(model.uid, number)) != number:
            problems.append(
                f"entry {number} ({model.name}), uid: {model.uid} is also the uid of entry {other} "
                f"({models[other - 1].name}); an entry without a uid gets its position, counted from 0",
            )


def _refuse_unknown(place: str, given: dict[Any, Any], known: Collection[str], problems: list[str]) -> None:
    unknown = (name for name in given if name not in known)
    problems += [f"{place}: unknown field {name!r:.60}{_nearest(str(name), known)}" for name in unknown]


def _nearest(name: str, known: Collection[str]) -> str:
    return did_you_mean(name, known, otherwise=f"; known are {', '.join(known)}", cutoff=0.5)


def _usable_key(key: str, what: str) -> Secret:
    if not key:
        raise ValueError(f"{what} is empty")
    if not all("!" <= character <= "~" for character in key):
        raise ValueError(f"{what} holds no valid key: a key is printable ASCII without blanks")
    return Secret(key)


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict | list) and not value:
        return f"an empty {type(value).__name__}"
    return redacted(repr(value) if not isinstance(value, dict | list) else f"a {type(value).__name__}", limit_chars=80)
