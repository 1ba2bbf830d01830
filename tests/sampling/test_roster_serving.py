"""Models that a roster has served from weights: what an entry may say, and what is told of one that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.admission import request_key
from headgate.core import Launch, Model, Serving, errors
from headgate.sampling import mapped_roster
from headgate.sampling.roster_entries import KeyRules, read_entries

VLLM = {"engine": "vllm", "weights": "/models/qwen"}


def read(*entries: object, allow_programs: bool = True, **top: object) -> tuple[Model, ...]:
    rules = KeyRules({}, allow_programs=allow_programs)
    return read_entries({"models": list(entries), **top}, "roster.yaml", rules)


def said(*entries: object, **more: bool) -> str:
    with pytest.raises(errors.InvalidRosterError) as caught:
        read(*entries, **more)
    return str(caught.value)


def test_an_entry_says_how_its_model_is_served_and_what_its_engines_run_at_once_is_its_limit() -> None:
    written = {**VLLM, "gpus": 2, "replicas": "0-2", "priority": 3, "slots": 16, "options": {"max-model-len": 4096}}
    (model,) = read({"name": "policy", "revision": "step_100", "serve": {**written, "idle_s": 5, "labels": {"a": "b"}}})
    launch = Launch("vllm", "/models/qwen", "policy", 2, 16, {"max-model-len": 4096})
    assert model.serve == Serving(launch, 0, 2, 3.0, "", {"a": "b"}, 5.0)
    assert (model.base_url, model.max_parallel) == ("", 32)
    assert request_key(model).account.provider == model.endpoint == "engines:///policy@step_100"


def test_defaults_are_completed_by_each_entry_and_give_way_to_an_endpoint_of_its_own() -> None:
    first, second, third = read(
        {"name": "p", "revision": "1", "serve": {"weights": "/ckpt/1"}},
        {"name": "p", "revision": "2", "model": "served", "max_parallel": 3, "serve": {"weights": "/ckpt/2"}},
        {"name": "q", "base_url": "http://127.0.0.1:1/v1", "api_key": ""},
        defaults={"serve": {**VLLM, "replicas": 2}, "base_url": "http://h/v1", "api_key": "env:NONE"},
    )
    assert [model.serve is not None for model in (first, second, third)] == [True, True, False]
    assert first.serve is not None
    assert second.serve is not None
    assert (first.serve.launch.weights, first.serve.least, first.serve.most) == ("/ckpt/1", 2, 2)
    assert (second.serve.launch.name, second.max_parallel) == ("served", 3)


@pytest.mark.parametrize(
    ("weights", "kept"),
    [
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("s3://models/qwen", "s3://models/qwen"),
        ("./here", "{cwd}/here"),
        ("small.gguf", "{cwd}/small.gguf"),
        ("folder", "{cwd}/folder"),
    ],
)
def test_a_path_does_not_depend_on_where_the_engine_runs(
    weights: str, kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (model,) = read({"name": "m", "serve": {"engine": "vllm", "weights": weights}})
    assert model.serve is not None
    assert model.serve.launch.weights == kept.format(cwd=tmp_path)


@pytest.mark.parametrize(
    ("serve", "sentence"),
    [
        ({"engine": "tgi", "weights": "w"}, "serve: engine must be 'llama.cpp', 'vllm', 'sglang' or 'command'"),
        ({"engine": "vllm"}, "serve: an engine of vllm needs its weights, a folder or name"),
        ({"engine": "command"}, "serve: an engine of command needs a command that starts it"),
        ({**VLLM, "command": "run"}, "serve: an engine of vllm takes no command (got 'run')"),
        ({"engine": "command", "command": "run"}, "must take its {port} (got 'run')"),
        ({**VLLM, "wieghts": "x"}, "there is no setting wieghts; did you mean 'weights'"),
        ({**VLLM, "replicas": "3-1"}, "replicas must be a number of engines >= 1, or the fewest and the most as 0-2"),
        ({**VLLM, "replicas": 0}, "replicas must be a number of engines >= 1"),
        ({**VLLM, "gpus": -1}, "gpus must be greater than or equal to 0 (got -1)"),
        ("vllm", "serve: must be a mapping"),
    ],
)
def test_what_cannot_be_served_is_refused_with_its_field_and_rule(serve: object, sentence: str) -> None:
    assert sentence in said({"name": "m", "serve": serve})


def test_an_entry_has_an_endpoint_or_engines_and_never_both() -> None:
    text = said({"name": "m", "serve": VLLM, "base_url": "http://127.0.0.1:1/v1"}, {"name": "n"})
    assert "entry 1 (m), serve: replaces base_url and api_key; leave those out" in text
    assert "entry 2 (n), base_url: is missing; every entry needs one, or `serve`" in text


def test_a_roster_from_elsewhere_starts_no_programs() -> None:
    assert "a remote roster may not start programs" in said({"name": "m", "serve": VLLM}, allow_programs=False)


async def test_a_mapping_may_say_how_a_model_is_served() -> None:
    (model,) = (await mapped_roster({"m": {"serve": VLLM}}).load()).models
    assert model.serve is not None
