"""Registries of a plugin whose environments run apart; few processes, since starting one takes half a second."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from headgate.core import ChatReply
from headgate.environments import GROUP, Registry, end_idle_processes
from headgate.environments.apart import HOSTS, ApartLimits
from headgate.environments.protocol import COLLECTION_GROUP

SINGLES = {"single:apart": "single_apart", "single:judged": "single_judged", "odd:here": "single_here"}
COLLECTIONS = {"odd": "Behaviours", "dead": "CannotStart", "misnamed": "Behaviours"}


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    """The folder of a plugin that is on the path, as an installed one is."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "odd_plugin.py").write_text(Path(__file__).with_name("plugin_text.py").read_text())
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(folder))
        yield folder
    sys.modules.pop("odd_plugin", None)


@pytest.fixture(scope="module")
def registry_under(plugin):
    """Makes registries of the plugin under limits; their processes end with the module."""

    def make(**limits):
        singles = [EntryPoint(name, f"odd_plugin:{value}", GROUP) for name, value in SINGLES.items()]
        collections = [EntryPoint(name, f"odd_plugin:{value}", COLLECTION_GROUP) for name, value in COLLECTIONS.items()]
        return Registry(lambda: singles, collections=lambda: collections, apart=ApartLimits(**limits))

    yield make
    end_idle_processes()


@pytest.fixture(scope="module")
def registry(registry_under):
    return registry_under()


@pytest.fixture(scope="session")
def chat():
    """A model that says x."""

    async def said(messages):
        return ChatReply("x")

    return said


@pytest.fixture(scope="session")
def children_of():
    """Gives the processes of a registry's collection."""

    def found(registry, prefix="odd"):
        return HOSTS.of(registry._source(prefix), registry._limits).children()

    return found
