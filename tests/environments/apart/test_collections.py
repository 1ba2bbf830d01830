"""Collections in a registry: members, patterns, what is left out, and settings by a member's name."""

from __future__ import annotations

import logging

import pytest

from headgate.config import Settings
from headgate.core import errors
from headgate.environments import Registry, selected
from headgate.environments.apart import HostedEnvironment
from headgate.run import rates_of, sampled_environments
from headgate.run.environments import judged_environments


def test_collections_are_told_without_starting_a_process(registry, children_of):
    before = children_of(registry)
    dead, misnamed, odd = registry.collections()
    assert [(one.prefix, one.extra, one.problem) for one in (dead, odd)] == [
        (n, "odd-extra", None) for n in ("dead", "odd")
    ]
    assert "collection 'misnamed' has the prefix 'odd'" in misnamed.problem
    assert children_of(registry) == before


def test_members_are_no_part_of_what_is_listed_without_them(registry):
    assert "odd:right" in registry.members("odd")
    assert registry.names() == ("odd:here", "single:apart", "single:judged")


def test_a_member_is_made_once_and_a_single_one_goes_before_a_member_of_its_name(registry):
    assert registry.environment("odd:right") is registry.environment("odd:right")
    assert isinstance(registry.environment("odd:right"), HostedEnvironment)
    assert not isinstance(registry.environment("odd:here"), HostedEnvironment)


def test_every_member_is_listed_with_its_spec_or_its_problem(registry):
    listed = {entry.name: entry for entry in registry.available_in("odd")}
    assert tuple(listed) == registry.members("odd")
    assert listed["odd:right"].spec == registry.environment("odd:right").spec
    assert listed["odd:no-spec"].spec is None
    assert "without spec, open, baseline" in listed["odd:no-spec"].problem
    assert "boom" in listed["odd:unmade"].problem
    assert "odd-extra" in listed["odd:extra"].problem
    assert "has runs_apart and needs a judge" in listed["odd:judged"].problem


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("odd:none", errors.UnknownEnvironmentError, "'odd:none' is not in its collection"),
        ("odd:extra", errors.MissingExtraError, r"headgate\[odd-extra\]"),
        ("odd:judged", errors.EnvironmentFailedError, "has runs_apart and needs a judge"),
        ("odd:unmade", errors.EnvironmentFailedError, "ValueError: boom"),
        ("single:judged", errors.EnvironmentFailedError, "has runs_apart and needs a judge"),
    ],
)
def test_what_is_wrong_with_a_member_is_raised_as_it_would_be_here(registry, name, kind, says):
    with pytest.raises(kind, match=says):
        registry.environment(name)


def test_a_collection_that_there_is_not_is_told_with_the_nearest(registry):
    with pytest.raises(errors.UnknownEnvironmentError, match="collection 'od' is not registered; did you mean 'odd'"):
        registry.available_in("od")


def test_a_pattern_means_what_matches_it(registry):
    assert tuple(selected(["odd:bl?c*s"], registry).environments) == ("odd:blocks",)
    assert {"odd:here", "odd:right", "odd:nan"} <= set(selected(["odd:*"], registry).environments)
    assert tuple(selected(["single:a*"], registry).environments) == ("single:apart",)
    with pytest.raises(errors.UnknownEnvironmentError, match=r"no environment matches 'odd:zz\*'. There are odd:"):
        selected(["odd:zz*"], registry)


def test_what_a_pattern_means_and_cannot_be_used_is_left_out_with_a_warning(registry, caplog):
    with caplog.at_level(logging.WARNING, logger="headgate.environments"):
        found = sampled_environments(Settings(environments=("odd:[enru]*",)), registry=registry)
    assert "odd:right" in found
    assert not {"odd:extra", "odd:unmade", "odd:no-spec"} & set(found)
    assert "environment odd:unmade is left out: " in caplog.text
    with pytest.raises(errors.EnvironmentFailedError, match="boom"):
        selected(["odd:unm*"], registry)


def test_judged_environments_are_looked_up_in_the_registry_that_is_given(registry):
    with pytest.raises(errors.InvalidSettingError, match="'odd:right' scores answers itself"):
        judged_environments(["odd:right"], registry)


def test_the_rate_of_a_member_is_set_by_its_name(registry):
    sampled = sampled_environments(Settings(environments=("odd:r*",)), registry=registry)
    rates = rates_of(Settings(rates={"odd:right": 7.0}), sampled)
    assert (rates["odd:right"], rates["odd:raises"]) == (7.0, 10.0)


def test_processes_are_shared_by_registries_with_the_same_limits(registry, children_of):
    other = Registry(tuple, collections=registry._collection_points)
    assert children_of(other) == children_of(registry) != ()
