"""The load and the sites of `headgate elastic replay`, from what its options say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import yaml
from cyclopts import Parameter

from headgate.core.errors import InvalidInputError
from headgate.elastic import ElasticConfig, elastic_config
from headgate.elastic.replay import Hardware, Load, Site, named_load

WORKERS: Final = 16
"""Of a site, where nobody says how many."""

_SLOTS: Final = 8
_HARDWARE: Final = Hardware()


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """Which load is replayed, and what is made of it."""

    slots: Annotated[int | None, Parameter(help=f"Requests that a worker runs at once; {_SLOTS} by default.")] = None
    seed: Annotated[int, Parameter(help="Of the ramp, and of copies: another one gives other moments.")] = 0
    scale: Annotated[float, Parameter(help="Of the ramp: all lengths of time by this; 1 is an hour.")] = 1.0
    copies: Annotated[int, Parameter(help="Of a trace: so many times as many users, with the same course.")] = 1
    service_times: Annotated[
        Path | None,
        Parameter(
            help="Of a trace: table of how long tokens take (data/perf_model.csv of "
            "https://github.com/Mutinifni/splitwise-sim)."
        ),
    ] = None
    model: Annotated[str, Parameter(help="Model of the table.")] = _HARDWARE.model
    hardware: Annotated[str, Parameter(help="Hardware of the table.")] = _HARDWARE.hardware
    gpus: Annotated[int, Parameter(help="GPUs of a worker, in the table.")] = _HARDWARE.tensor_parallel

    def read(self, trace: str, slots: int) -> Load:
        """Return the load.

        Raises:
            InvalidLoadError: there is no such trace, its table of times is missing, or one of them cannot be used.
        """
        return named_load(
            trace,
            self.service_times,
            hardware=Hardware(self.model, self.hardware, self.gpus),
            slots=slots,
            copies=self.copies,
            scale=self.scale,
            seed=self.seed,
        )


def settings_of(path: Path) -> ElasticConfig:
    """Return the settings of a file of a pool, or of a file of settings.

    Raises:
        InvalidInputError: it cannot be read, or a setting breaks a rule.
    """
    try:
        written: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInputError(f"the settings {path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path} is no YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(written, dict):
        raise InvalidInputError(f"{path} holds no settings of an elastic pool (got {type(written).__name__})")
    if "pool" in written:
        return elastic_config({"elastic_config": written.get("elastic_config", {})})
    return elastic_config(written)


def slots_of(asked: int | None, config: ElasticConfig | None) -> int:
    """Return the slots of a worker: what was asked for, else what the settings say."""
    told = None if config is None else config.requests_per_worker_capacity
    slots = _SLOTS if told is None else told
    return slots if asked is None else asked


def workers_of(asked: int | None, config: ElasticConfig | None) -> int:
    """Return how many workers there are: what was asked for, else what the settings say."""
    if asked is None:
        return WORKERS if config is None else config.max_workers
    return asked


def fitting(config: ElasticConfig | None, load: Load, site: Site) -> ElasticConfig | None:
    """Return the settings for a site and a load that flags may have changed."""
    if config is None:
        return None
    sizes = {"max_workers": site.workers, "requests_per_worker_capacity": load.slots}
    return ElasticConfig(**config.model_dump() | sizes)
