"""Finding environments, and what happens when a plugin is broken."""

from __future__ import annotations

import sys
import types
from importlib.metadata import EntryPoint, entry_points

import pytest

from headgate.core import errors
from headgate.environments import GROUP, EnvironmentSpec, Registry, available, environment, environments, registry_with

SEED_RATES = {"agentgym:alfworld": 80.0, "agentgym:babyai": 120.0, "agentgym:sciworld": 80.0}


class Tiny:
    made = 0

    def __init__(self, name="tiny:one"):
        type(self).made += 1
        self.spec = EnvironmentSpec(name, "tiny", 10.0, 1)

    async def open(self, index, seed):
        raise AssertionError

    async def baseline(self, kind, index, seed, conversation, rng):
        raise AssertionError


def raises(error):
    def factory():
        raise error

    return factory


@pytest.fixture
def registry(monkeypatch):
    """A registry of the callables that the test names, in a module of a plugin."""

    def make(**factories):
        module = types.ModuleType("plugin_under_test")
        points = []
        for number, (name, factory) in enumerate(factories.items()):
            setattr(module, f"factory{number}", factory)
            points.append(EntryPoint(name.replace("__", ":"), f"plugin_under_test:factory{number}", GROUP))
        monkeypatch.setitem(sys.modules, "plugin_under_test", module)
        return Registry(lambda: points)

    return make


def test_our_own_environments_are_registered():
    assert {"affine:abd", "affine:ded", "affine:sat", "affine:sat-hard"} <= set(environments())
    assert {"agentgym:babyai", "agentgym:textcraft"} <= set(environments())
    assert list(environments()) == sorted(environments())


def test_every_spec_of_ours_can_be_listed():
    ours = [entry for entry in available() if entry.name.startswith(("affine:", "agentgym:"))]
    assert [entry.problem for entry in ours] == [None] * len(ours)
    for entry in ours:
        assert entry.spec.name == entry.name
        assert entry.spec.daily_rate == SEED_RATES.get(entry.name, 100.0)
        assert entry.spec.summary
        assert entry.spec.source
        assert entry.spec.data_length > 1_000
        assert 0.0 <= entry.spec.chance_score <= 1.0


def test_one_instance_serves_the_whole_process():
    assert environment("affine:sat") is environment("affine:sat")


def test_listing_names_loads_nothing(registry):
    found = registry(b__two=raises(RuntimeError()), a__one=raises(RuntimeError()))
    assert found.names() == ("a:one", "b:two")


def test_an_environment_is_made_once(registry):
    found = registry(tiny__one=Tiny)
    Tiny.made = 0
    assert found.environment("tiny:one") is found.environment("tiny:one")
    assert Tiny.made == 1


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(
        errors.UnknownEnvironmentError, match="'affine:stat' is not registered; did you mean 'affine:sat'"
    ):
        environment("affine:stat")


def test_an_unknown_name_unlike_any_other_gets_no_suggestion(registry):
    with pytest.raises(errors.UnknownEnvironmentError) as caught:
        registry(tiny__one=Tiny).environment("zzzzzzzz")
    assert "did you mean" not in str(caught.value)


@pytest.mark.parametrize("error", [RuntimeError("boom"), ImportError("boom"), ModuleNotFoundError("boom")])
def test_a_broken_plugin_fails_only_who_asks_for_it(registry, error):
    found = registry(bad__one=raises(error), tiny__one=Tiny)
    assert found.environment("tiny:one").spec.name == "tiny:one"
    with pytest.raises(errors.EnvironmentFailedError, match=r"'bad:one' cannot be loaded: .*boom"):
        found.environment("bad:one")


def test_a_broken_plugin_is_listed_with_its_problem(registry):
    broken, good = registry(bad__one=raises(RuntimeError("boom")), tiny__one=Tiny).available()
    assert (broken.name, broken.spec) == ("bad:one", None)
    assert "boom" in broken.problem
    assert good.spec.name == "tiny:one"
    assert good.problem is None


def test_a_module_that_cannot_be_imported_is_a_clear_error():
    found = Registry(lambda: [EntryPoint("bad:one", "no_such_module_anywhere:make", GROUP)])
    with pytest.raises(errors.EnvironmentFailedError, match="no_such_module_anywhere"):
        found.environment("bad:one")


def test_something_that_is_no_environment_is_refused(registry):
    with pytest.raises(errors.EnvironmentFailedError, match="is a dict without spec, open, baseline"):
        registry(bad__one=dict).environment("bad:one")


def test_an_error_ends_its_question_once():
    assert str(errors.NotFoundError("no a; did you mean 'b'?", next_step="Look.")) == "no a; did you mean 'b'? Look."


def test_an_environment_is_told_only_what_it_lacks(registry):
    lacking = type("Lacking", (), {"spec": Tiny().spec, "open": Tiny.open})
    with pytest.raises(errors.EnvironmentFailedError, match=r"is a Lacking without baseline\. "):
        registry(bad__one=lacking).environment("bad:one")


def test_an_environment_must_call_itself_by_its_registered_name(registry):
    with pytest.raises(errors.EnvironmentFailedError, match="'other:name' calls itself 'tiny:one'"):
        registry(other__name=Tiny).environment("other:name")


def test_a_name_registered_twice_is_refused():
    points = [EntryPoint("tiny:one", "a:make", GROUP), EntryPoint("tiny:one", "b:make", GROUP)]
    found = Registry(lambda: points)
    with pytest.raises(errors.EnvironmentFailedError, match="registered more than once: by a:make and b:make"):
        found.environment("tiny:one")
    assert "more than once" in found.available()[0].problem


def test_one_package_seen_twice_is_no_conflict():
    points = [EntryPoint("affine:sat", "headgate_environments.affine.sat:sat", GROUP)] * 2
    assert Registry(lambda: points).environment("affine:sat").spec.name == "affine:sat"


@pytest.mark.parametrize("name", ["affine:abd", "affine:ded", "agentgym:babyai", "agentgym:textcraft"])
def test_a_missing_optional_package_names_the_extra(name, monkeypatch):
    monkeypatch.setattr("importlib.metadata.distribution", raises_not_found)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    found = Registry(lambda: _installed(name))
    with pytest.raises(errors.MissingExtraError, match=r"headgate\[environments\]"):
        found.environment(name)


def test_further_environments_stand_beside_the_installed_ones(registry):
    found = registry_with([Tiny("tiny:served")])
    assert found.names() == tuple(sorted({*environments(), "tiny:served"}))
    assert found.environment("tiny:served").spec.name == "tiny:served"
    assert found.environment("affine:sat").spec.name == "affine:sat"
    assert "tiny:served" in [entry.name for entry in found.available()]
    with pytest.raises(errors.UnknownEnvironmentError, match="did you mean 'tiny:served'"):
        found.environment("tiny:serve")
    assert "tiny:served" not in environments()


def raises_not_found(_):
    from importlib.metadata import PackageNotFoundError

    raise PackageNotFoundError


def _installed(name):
    return [point for point in entry_points(group=GROUP) if point.name == name]
