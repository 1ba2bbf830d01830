"""The specification of an engine as a user writes it, and the adapter made from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from headgate.core import Secret
from headgate.core.flaws import flaws_raised
from headgate.elastic.engines.calls import KeyRefusedError, Reply
from headgate.elastic.engines.engine import Engine
from headgate.elastic.engines.http import EngineHttp
from headgate.elastic.engines.ray_actor import RayActorEngine
from headgate.elastic.engines.records import ReleasedTags
from headgate.elastic.engines.sglang import SGLangEngine
from headgate.elastic.engines.smg import SmgEngine
from headgate.elastic.engines.vllm import VLLMEngine
from headgate.elastic.errors import EngineError, InvalidElasticError, NotAnEngineError
from headgate.elastic.settings import ElasticConfig

EngineKind = Literal["auto", "sglang", "vllm", "ray"]
FindActor = Callable[[str], Any]
"""Returns the handle of the actor with a given name."""

_RAY: Final = "ray://"


class NamedEngine(BaseModel):
    """One engine, without its keys.

    Attributes:
        url: its address, `http://host:port`; or `ray://name` for an actor.
        kind: whose API it speaks; `auto` asks it.
        slots: most requests that it is given at once; a server that runs fewer is given fewer.
        router: address of an SGLang gateway (`smg`) to which it is added when it wakes, and from which it is removed
            before it sleeps.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    kind: EngineKind = "auto"
    slots: int | None = Field(default=None, ge=1)
    router: str | None = None

    @field_validator("url", "router")
    @classmethod
    def _be_an_address(cls, written: str | None) -> str | None:
        return None if written is None else _address(written)

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.is_actor != (self.kind == "ray") and self.kind != "auto":
            raise ValueError(f"kind {self.kind!r} does not go with the url {self.url!r}; actors are ray://name")
        if self.is_actor and self.router is not None:
            raise ValueError(f"an actor cannot be a worker of the gateway {self.router!r}")
        if self.is_actor and self.slots is not None:
            raise ValueError(f"slots must not be given for an actor, whose load() reports them (got {self.slots})")
        return self

    @property
    def is_actor(self) -> bool:
        """Whether it is an actor rather than a server."""
        return self.url.startswith(_RAY)


class EngineSpec(NamedEngine):
    """One engine as a user names it.

    Attributes:
        api_key: for requests.
        admin_key: for putting it to sleep, if that takes another key (SGLang's `--admin-api-key`).
        router_key: for the gateway.
    """

    api_key: SecretStr = SecretStr("")
    admin_key: SecretStr = SecretStr("")
    router_key: SecretStr = SecretStr("")

    def __init__(self, **written: Any) -> None:
        with flaws_raised(type(self), InvalidElasticError, "an engine: "):
            super().__init__(**written)


async def open_engine(spec: EngineSpec, config: ElasticConfig, *, find_actor: FindActor | None = None) -> Engine:
    """Return the adapter of an engine; it is not checked yet, except that `kind: auto` asks whose API it speaks.

    Args:
        spec: the engine as a user wrote it.
        config: deadlines and attempts.
        find_actor: returns the handle of an actor by its name, for `ray://name`.

    Raises:
        NotAnEngineError: `kind` is `auto`, and the server speaks neither API.
        EngineError: `kind` is `auto`, and nothing answers.
        InvalidElasticError: it is an actor, and `find_actor` is None.
    """
    if spec.is_actor:
        if find_actor is None:
            raise InvalidElasticError(
                f"the engine {spec.url!r} is a Ray actor, and no Ray cluster is connected here",
                next_step="Run the pool through its flow or from Python, where Ray is connected.",
            )
        return RayActorEngine(spec.url, find_actor(spec.url.removeprefix(_RAY)), config)
    keys = {"api_key": _secret(spec.api_key), "admin_key": _secret(spec.admin_key) or None}
    http = EngineHttp(spec.url, config, **keys)
    kind = spec.kind if spec.kind != "auto" else await _kind_of(http)
    engine: Engine = (
        SGLangEngine(http, config, ReleasedTags(spec.url), slots=spec.slots)
        if kind == "sglang"
        else VLLMEngine(http, config, slots=spec.slots)
    )
    if spec.router is None:
        return engine
    router = EngineHttp(spec.router, config, api_key=_secret(spec.router_key))
    return SmgEngine(engine, router, config, _secret(spec.api_key))


async def _kind_of(http: EngineHttp) -> str:
    """Return whose API is spoken, by a route that only one of them has; closes the connections if neither is."""
    try:
        if _tells(await http.get("/server_info"), "enable_memory_saver"):
            return "sglang"
        if _tells(await http.get("/version"), "version"):
            return "vllm"
        workers = await http.get("/workers")
    except KeyRefusedError as error:
        await http.close()
        raise NotAnEngineError(error.message, next_step="Give the engine's api_key.") from None
    except EngineError:
        await http.close()
        raise
    await http.close()
    what = "is a gateway and no engine" if _tells(workers, "workers") else "speaks neither SGLang's API nor vLLM's"
    raise NotAnEngineError(
        f"what answers at {http.address} {what}",
        next_step="Name an engine's own address; a gateway goes into its `router`.",
    )


def _tells(reply: Reply, name: str) -> bool:
    try:
        told = reply.read() if reply.is_ok else None
    except EngineError:
        return False
    return isinstance(told, dict) and name in told


def _address(written: str) -> str:
    """Return an address in one form, without the `/v1` that clients of engines add to it."""
    if written.startswith(_RAY) and len(written) > len(_RAY):
        return written
    try:
        parts = urlsplit(written.strip())
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        raise ValueError(f"an engine's url must be http://host:port (got {written!r:.200})") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"an engine's url must be http://host:port or ray://name (got {written!r:.200})")
    if parts.username or parts.password:
        raise ValueError("an engine's url must not hold a user or password; there is api_key, in a file api_key_env")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{port}{parts.path.rstrip('/').removesuffix('/v1')}"


def _secret(written: SecretStr) -> Secret:
    return Secret(written.get_secret_value())
