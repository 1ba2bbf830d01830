"""The file of a pool: what it says is taken over, and every mistake is told with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.elastic.errors import InvalidElasticError
from headgate.elastic.gateway import load_pool_file

GOOD = """
pool:
  name: chat
  model: tiny
  engines:
    - http://127.0.0.1:30000
    - {url: "http://127.0.0.1:30001/", kind: vllm, slots: 4, api_key_env: VLLM_KEY}
elastic_config: {max_workers: 2, drain_timeout: 5}
gateway: {port: 0, tokens_env: {alice: ALICE}, weights: {alice: 2}}
"""

POOL = "pool: {engines: [http://a:1]}\n"


def loaded(folder: Path, text: str) -> object:
    path = folder / "pool.yaml"
    path.write_text(text)
    return load_pool_file(path)


def test_a_file_names_engines_settings_and_the_gateway(tmp_path: Path) -> None:
    path = tmp_path / "pool.yaml"
    path.write_text(GOOD)
    pool_file = load_pool_file(path)

    assert (pool_file.pool.name, pool_file.pool.model) == ("chat", "tiny")
    assert pool_file.elastic_config.max_workers == 2
    assert pool_file.gateway.tokens_env == {"alice": "ALICE"}
    first, second = pool_file.specs({"VLLM_KEY": "a-secret-key"})
    assert (first.url, first.kind) == ("http://127.0.0.1:30000", "auto")
    assert (second.url, second.kind, second.slots) == ("http://127.0.0.1:30001", "vllm", 4)
    assert second.api_key.get_secret_value() == "a-secret-key"


def test_actors_and_what_workers_stand_on_are_left_to_whoever_places_them(tmp_path: Path) -> None:
    path = tmp_path / "pool.yaml"
    path.write_text("pool: {engines: [{class: my.Engine, count: 2}, http://a:1]}\nplacement: {role: rollout}\n")
    pool_file = load_pool_file(path)

    assert pool_file.actors == [{"class": "my.Engine", "count": 2}]
    assert pool_file.placement == {"role": "rollout"}
    assert [spec.url for spec in pool_file.specs({})] == ["http://a:1"]


def test_a_key_whose_variable_is_not_set_is_told_with_its_engine(tmp_path: Path) -> None:
    path = tmp_path / "pool.yaml"
    path.write_text(GOOD)

    with pytest.raises(
        InvalidElasticError, match=r"api_key_env of the engine http://127\.0\.0\.1:30001 names .* VLLM_KEY"
    ):
        load_pool_file(path).specs({})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[]", "must be a mapping with `pool` (got list)"),
        ("{}", "pool is missing"),
        ("pools: {}", "there is no setting pools; did you mean 'pool'?"),
        ("pool: 3", "pool must be a mapping (got 3)"),
        ("pool: {engines: []}", "pool.engines must name at least one engine (got [])"),
        ("pool: {engines: http://a:1}", "pool.engines must be a list (got 'http://a:1')"),
        ("pool: {engines: [7]}", "pool.engines[0] must be an address, or a mapping with its `url` (got 7)"),
        ("pool: {engines: [ftp://a:1]}", "pool.engines[0].url: an engine's url must be http://host:port"),
        ("pool: {engines: [http://a:1, {url: http://b:1, kidn: vllm}]}", "pool.engines[1].kidn; did you mean 'kind'?"),
        ("pool: {engines: [{url: http://a:1, kind: tgi}]}", "pool.engines[0].kind must be 'auto', 'sglang', 'vllm'"),
        ("pool: {engines: [{url: http://a:1, slots: 0}]}", "pool.engines[0].slots must be greater than or equal to 1"),
        ("pool: {name: a b, engines: [http://a:1]}", "pool.name must be 1 to 64 letters"),
        (POOL + "elastic_config: {min_worker: 1}", "elastic_config: there is no setting min_worker; did"),
        (POOL + "elastic_config: {drain_timeout: -1}", "elastic_config: drain_timeout must be"),
        (POOL + "gateway: {port: 99999}", "gateway.port must be less than or equal to 65535 (got 99999)"),
        (POOL + "gateway: {weights: {a: 0}}", "gateway.weights.a must be greater than 0 (got 0)"),
        (POOL + "pool: {}", "cannot be read: line 2, column 1: 'pool' is given twice"),
        ("pool: [", "cannot be read: line 1, column 8: "),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_file_its_place_and_its_value(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(InvalidElasticError) as caught:
        loaded(tmp_path, text)
    assert caught.value.message.startswith(f"{tmp_path / 'pool.yaml'}")
    assert sentence in caught.value.message


def test_a_key_in_the_place_of_its_variable_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(InvalidElasticError) as caught:
        loaded(tmp_path, "pool: {engines: [{url: http://a:1, api_key_env: sk-0123456789-abc}]}")
    assert "must be the name of an environment variable" in caught.value.message
    assert "0123456789" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidElasticError, match=r"missing\.yaml cannot be read: No such file"):
        load_pool_file(tmp_path / "missing.yaml")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pool.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidElasticError, match="is not UTF-8 text"):
        load_pool_file(path)
