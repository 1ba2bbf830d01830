"""SGLang's own `/generate`: its body, its answer, its events (each with the whole text so far)."""

from __future__ import annotations

from typing import Any

from headgate.simulation.engines.request import EngineRequest
from headgate.simulation.engines.wire import DONE, Asked, RefusedError, event, read_document, words_of


def read_native(body: bytes) -> Asked:
    """Return what the body of `/generate` asks for.

    Raises:
        RefusedError: naming what is wrong with it.
    """
    document = read_document(body)
    sampling = document.get("sampling_params") or {}
    if not isinstance(sampling, dict):
        raise RefusedError(400, "sampling_params must be an object")
    ids = document.get("input_ids")
    prompt = tuple(str(token) for token in ids) if isinstance(ids, list) else words_of(document.get("text"))
    return Asked(
        document=document,
        model="",
        prompt=prompt or ("",),
        max_tokens=int(sampling.get("max_new_tokens", 128)),
        ignores_end=bool(sampling.get("ignore_eos")),
        streams=bool(document.get("stream")),
        wants_usage=False,
    )


class NativeAnswer:
    """Writes the answer of one request in SGLang's own form."""

    def __init__(self, request: EngineRequest) -> None:
        self._request = request

    def whole(self) -> dict[str, Any]:
        """Return the text so far and what is known about it."""
        request = self._request
        finish: dict[str, Any] | None = {"type": request.finish} if request.finish else None
        if finish and request.finish == "length":
            finish["length"] = request.generated
        return {
            "text": request.text(),
            "output_ids": list(range(request.generated)),
            "meta_info": {
                "id": request.request_id,
                "finish_reason": finish,
                "prompt_tokens": request.prompt_tokens,
                "completion_tokens": request.generated,
                "cached_tokens": 0,
                "weight_version": "default",
            },
        }

    def opening(self) -> bytes:
        """Return nothing: there is no role here."""
        return b""

    def piece(self) -> bytes:
        """Return an event with the whole answer so far."""
        return event(self.whole())

    def closing(self, *, with_usage: bool) -> bytes:  # noqa: ARG002
        """Return the end; an aborted answer has an event of its own."""
        return (event(self.whole()) if self._request.finish == "abort" else b"") + DONE
