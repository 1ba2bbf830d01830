"""The pool file: a pool's engines, how it follows its load, and the gateway in front of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from headgate.core.documents import read_document
from headgate.core.flaws import flaws_raised, text_like
from headgate.elastic.engines import EngineSpec, NamedEngine
from headgate.elastic.errors import InvalidElasticError
from headgate.elastic.gateway.settings import GatewaySettings, Variable, secret_of
from headgate.elastic.settings import ElasticConfig, elastic_config

MAX_FILE_BYTES: Final = 1_000_000


class EngineEntry(NamedEngine):
    """One engine in the file, with the environment variables that hold the keys of its `EngineSpec`.

    An address alone is an entry, too. An entry with `class` or `serve` stands for actors that are started in placement
    groups of a cluster; it is validated by the code that starts them.

    Attributes:
        actors: such an entry as written; None for an engine with an address.
    """

    api_key_env: Variable | None = None
    admin_key_env: Variable | None = None
    router_key_env: Variable | None = None
    actors: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _be_more_than_an_address(cls, written: object) -> object:
        if isinstance(written, str):
            return {"url": written}
        if not isinstance(written, Mapping):
            raise ValueError("must be an address, or a mapping with its `url`")  # noqa: TRY004 - pydantic tells it
        for how in ("class", "serve"):
            if how in written:
                return {"url": f"ray://{written[how]}", "kind": "ray", "actors": dict(written)}
        return written

    def spec(self, environ: Mapping[str, str]) -> EngineSpec:
        """Return the engine with its keys.

        Raises:
            InvalidElasticError: an environment variable is not set.
        """
        keys = {
            name: secret_of(variable, environ, f"{name}_env of the engine {self.url}").reveal()
            for name in ("api_key", "admin_key", "router_key")
            if (variable := getattr(self, f"{name}_env")) is not None
        }
        return EngineSpec(url=self.url, kind=self.kind, slots=self.slots, router=self.router, **keys)


PoolName = Annotated[
    str,
    AfterValidator(text_like("[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "must be 1 to 64 letters, digits, '.', '_' or '-'")),
]


class PoolSection(BaseModel):
    """The pool itself.

    Attributes:
        name: name in events, metrics and claims.
        model: the model that its engines must serve; None for whatever they serve.
        engines: the workers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: PoolName = "pool"
    model: Annotated[str, Field(min_length=1)] | None = None
    engines: tuple[EngineEntry, ...]

    @field_validator("engines")
    @classmethod
    def _be_some(cls, engines: tuple[EngineEntry, ...]) -> tuple[EngineEntry, ...]:
        if not engines:
            raise ValueError("must name at least one engine")
        return engines


class PoolFile(BaseModel):
    """The content of a pool file.

    Attributes:
        pool: its engines.
        elastic_config: how it follows its load.
        gateway: the gateway in front of it.
        placement: placement groups for its workers on a cluster; validated by the code that leases them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    pool: PoolSection
    elastic_config: ElasticConfig = ElasticConfig()
    gateway: GatewaySettings = GatewaySettings()
    placement: dict[str, Any] | None = None

    def specs(self, environ: Mapping[str, str]) -> list[EngineSpec]:
        """Return the engines that have an address; raises InvalidElasticError like `EngineEntry.spec`."""
        return [entry.spec(environ) for entry in self.pool.engines if entry.actors is None]

    @property
    def actors(self) -> list[dict[str, Any]]:
        """The entries whose engines are actors to be started in placement groups of a cluster."""
        return [entry.actors for entry in self.pool.engines if entry.actors is not None]


def load_pool_file(path: Path) -> PoolFile:
    """Read a pool file in YAML; its keys are in environment variables, which are read when the pool is opened.

    Raises:
        InvalidElasticError: it cannot be read, has an unknown setting, or a value that breaks a rule.
    """
    written = read_document(path, InvalidElasticError)
    try:
        return read_pool_document(written)
    except InvalidElasticError as error:
        raise type(error)(f"{path}: {error.message}", next_step=error.next_step) from None


def read_pool_document(written: object) -> PoolFile:
    """Return the pool of a parsed document.

    Raises:
        InvalidElasticError: a setting is unknown, invalid or contradicts another one; the message names it.
    """
    if not isinstance(written, Mapping):
        what = "it is empty" if written is None else f"got {type(written).__name__}"
        raise InvalidElasticError(f"it must be a mapping with `pool` ({what})")
    sections = dict(written)
    if "elastic_config" in sections:
        try:
            sections["elastic_config"] = elastic_config({"elastic_config": sections["elastic_config"]})
        except InvalidElasticError as error:
            raise InvalidElasticError(f"elastic_config: {error.message}") from None
    with flaws_raised(PoolFile, InvalidElasticError):
        return PoolFile.model_validate(sections)
