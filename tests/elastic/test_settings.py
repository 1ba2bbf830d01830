"""Settings of an elastic pool: what is wrong is refused with a sentence, at the start."""

from __future__ import annotations

import pytest

from headgate.elastic.errors import InvalidElasticError
from headgate.elastic.settings import ElasticConfig, elastic_config

SEED = {
    "scale_down_threshold": 0.5,
    "scale_up_threshold": 0.8,
    "min_workers": 1,
    "max_workers": 8,
    "requests_per_worker_capacity": 8,
    "monitoring_interval": 5.0,
    "drain_timeout": 30.0,
    "scale_down_cooldown": 60.0,
    "scale_up_cooldown": 30.0,
    "min_stable_period": 10.0,
    "enable_elastic": True,
}


def test_names_and_defaults_are_those_of_the_seed() -> None:
    assert ElasticConfig().model_dump(include=set(SEED)) == SEED


def test_a_section_of_a_training_configuration_is_read() -> None:
    written = {"elastic_config": {"min_workers": 2, "max_workers": 4}, "trainer": {"epochs": 3}}
    assert elastic_config(written) == ElasticConfig(min_workers=2, max_workers=4)


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ({"scale_down_threshold": 0.9}, "scale_down_threshold must be at least 0.05 below scale_up_threshold"),
        ({"scale_up_threshold": 0.52}, r"got 0\.5 and 0\.52"),
        ({"scale_up_threshold": 80}, r"scale_up_threshold must be less than or equal to 2 \(got 80\)"),
        ({"min_workers": 9}, r"min_workers must be <= max_workers \(got 9 > 8\)"),
        ({"min_workers": -1}, r"min_workers must be greater than or equal to 0 \(got -1\)"),
        ({"monitoring_interval": 0}, r"monitoring_interval must be greater than 0 \(got 0\)"),
        ({"drain_timeout": float("inf")}, "drain_timeout must be a finite number"),
        ({"scale_up_treshold": 0.7}, "no setting scale_up_treshold; did you mean 'scale_up_threshold'"),
        ({"policy": "magic"}, "policy must be 'threshold', 'target' or 'predictive'"),
        ({"panic_window": 90}, r"panic_window must be <= stable_window \(got 90\.0 > 20\.0\)"),
        ({"target_load": 1.2}, r"target_load must be <= 1 \(got 1\.2\)"),
    ],
)
def test_an_impossible_setting_is_refused(written: dict[str, object], sentence: str) -> None:
    with pytest.raises(InvalidElasticError, match=sentence):
        elastic_config(written)


def test_a_section_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(InvalidElasticError, match="must be a mapping"):
        elastic_config({"elastic_config": 7})
