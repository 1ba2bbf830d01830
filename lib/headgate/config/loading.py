"""Loads settings: flag > environment variable > file > default; unknown names are errors."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr, ValidationError

from headgate.config.renamed import FORMER_NAMES, advice_for, variables_of
from headgate.config.settings import Settings, setting_fields
from headgate.core import errors, redacted
from headgate.core.documents import read_document
from headgate.core.errors import did_you_mean
from headgate.core.flaws import rule_in_words

_log: Final = logging.getLogger("headgate")

OTHER_VARIABLES: Final = frozenset({"HEADGATE_AUDIT_FILE", "HEADGATE_CONFIG", "HEADGATE_POSTGRES_BIN"})
"""Variables with the prefix `HEADGATE_` that are not settings: two files, and the folder of PostgreSQL's programs."""

_OPTIONS: Final = {"num_evaluation_workers": " (--workers)"}
"""Command-line options whose name differs from their setting's."""

KEY_PREFIX: Final = "HEADGATE_KEY_"
"""Variables with this prefix hold API keys that rosters refer to."""

JOB_QUEUE_PREFIXES: Final = (
    "HEADGATE_JOBQUEUE_",
    "HEADGATE_JOB_",
    "HEADGATE_RESOURCE_",
    "HEADGATE_RESULT_",
    "HEADGATE_WORKER_",
)
"""Prefixes of the job queue's variables: those that its server reads, and those that workers set for their commands."""

ELASTIC_PREFIX: Final = "HEADGATE_ELASTIC_"
"""Variables with this prefix hold the keys and tokens that the files of elastic pools refer to."""


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, and where each value came from: `flag`, `env NAME`, `file PATH` or `default`."""

    settings: Settings
    origins: Mapping[str, str]

    def rows(self) -> list[tuple[str, str, str]]:
        """Return (name, value, origin) of every setting; secrets are masked."""
        return [(name, _shown(getattr(self.settings, name)), self.origins[name]) for name in setting_fields()]


def load_settings(
    flags: Mapping[str, Any] | None = None, *, environ: Mapping[str, str], file: Path | None = None
) -> LoadedSettings:
    """Return the settings that result from flags, variables, a YAML file and the defaults.

    Args:
        flags: setting name -> value; None values are absent flags.
        environ: the process environment.
        file: YAML file of setting names; `HEADGATE_CONFIG` when None.

    Raises:
        InvalidSettingError: for an unknown name, a value out of its bounds, or settings that contradict each other.
    """
    if file is None and environ.get("HEADGATE_CONFIG"):
        file = Path(environ["HEADGATE_CONFIG"])
    in_file = _read(file) if file else {}
    _refuse_unknown_variables(environ)
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    given = _with_present_names({name: value for name, value in (flags or {}).items() if value is not None})
    _refuse_unknown(given, "")
    for name in setting_fields():
        variable = next((v for v in variables_of(name) if environ.get(v, "") != ""), None)
        if name in given:
            values[name], origins[name] = given[name], "flag"
        elif variable is not None:
            values[name], origins[name] = environ[variable], f"env {variable}"
        elif name in in_file:
            values[name], origins[name] = in_file[name], f"file {file}"
        else:
            origins[name] = "default"
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise errors.InvalidSettingError("; ".join(_sentence(e, origins) for e in error.errors())) from None
    return LoadedSettings(settings.with_origins(origins), origins)


def _read(file: Path) -> dict[str, Any]:
    content = read_document(file, errors.InvalidSettingError, what="configuration file")
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise errors.InvalidSettingError(f"configuration file {file} must map setting names to values")
    content = _with_present_names(content)
    _refuse_unknown(content, f" (file {file})")
    return content


def _with_present_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings under their current names; logs a warning for each former name."""
    for name in FORMER_NAMES.keys() & given.keys():
        _log.warning("setting %s is called %s now", name, FORMER_NAMES[name])
    return {FORMER_NAMES.get(name, name): value for name, value in given.items()}


def _refuse_unknown(given: Mapping[str, Any], where: str) -> None:
    known = setting_fields()
    for name in given:
        if name not in known:
            raise _unknown(str(name), where, known)


def _refuse_unknown_variables(environ: Mapping[str, str]) -> None:
    known = {v for name in setting_fields() for v in variables_of(name)} | OTHER_VARIABLES
    for name in environ:
        is_elsewhere = name.startswith((KEY_PREFIX, ELASTIC_PREFIX, *JOB_QUEUE_PREFIXES)) or name in known
        if name.startswith("HEADGATE_") and not is_elsewhere:
            raise _unknown(name, " (environment)", known)


def _unknown(
    name: str, where: str, known: Mapping[str, object] | set[str] | frozenset[str]
) -> errors.InvalidSettingError:
    advice = advice_for(name)
    if advice is not None:
        return errors.InvalidSettingError(f"there is no setting {name!r}{where}", next_step=advice)
    return errors.InvalidSettingError(f"unknown setting {name!r}{where}{did_you_mean(name, known)}")


def _sentence(error: Any, origins: Mapping[str, str]) -> str:
    message = rule_in_words(error)
    if not error["loc"]:
        return message
    name = str(error["loc"][0])
    value = error.get("input")
    # An address may contain a password.
    is_secret = "Secret" in str(setting_fields()[name].annotation) or name == "journal" or "password" in message
    is_shown = not (is_secret or isinstance(value, dict) or repr(value) in message)
    told = [f"got {redacted(repr(value))}"] * is_shown + [f"from {origins[name]}"] * (origins[name] != "flag")
    place = ".".join([name + _OPTIONS.get(name, ""), *map(str, error["loc"][1:])])
    where = f" ({' '.join(told)})" if told else ""
    return f"{place}{' ' if message.startswith('must ') else ': '}{message}{where}"


def _shown(value: object) -> str:
    if isinstance(value, SecretStr):
        return "[redacted]" if value.get_secret_value() else ""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        return ",".join(f"{k}={v:g}" if isinstance(v, float) else f"{k}={_shown(v)}" for k, v in value.items())
    return redacted(str(value))  # addresses may contain a user and a password
