"""The reference is complete: whatever the code has, a page has under its own heading."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import sys

import pytest
from prefect import Flow
from prefect.blocks.core import Block

import blocks
from headgate.core import ErrorKind, Sample, errors, events
from tests.docs.pages import DOCS, headings
from tests.house.tree import ROOT


def _error_classes() -> list[type[errors.HeadgateError]]:
    found = [errors.HeadgateError]
    for cls in found:
        found += cls.__subclasses__()
    return [cls for cls in found if cls.__module__ == errors.__name__]


def _event_classes() -> list[type[events.Event]]:
    members = [value for _, value in inspect.getmembers(events, inspect.isclass)]
    return [c for c in members if issubclass(c, events.Event) and c is not events.Event]


def test_every_error_code_has_its_heading_and_no_heading_is_left_over() -> None:
    codes = {cls.code for cls in _error_classes()}
    written = headings("reference/errors.md")
    assert codes <= written
    assert {h for h in written if "_" in h} <= codes | {kind.value for kind in ErrorKind}


@pytest.mark.parametrize("cls", _error_classes(), ids=lambda c: c.code)
def test_the_page_of_errors_states_the_exit_status_and_the_http_status(cls: type[errors.HeadgateError]) -> None:
    text = (DOCS / "reference/errors.md").read_text()
    section = text.split(f"## `{cls.code}`\n", 1)[1].split("\n## ", 1)[0]
    assert f"Exit status {cls.exit_code}, HTTP {cls.http_status}." in section


def test_every_kind_of_a_sample_s_error_is_explained() -> None:
    text = (DOCS / "reference/errors.md").read_text()
    assert [kind.value for kind in ErrorKind if f"`{kind.value}`" not in text] == []


def test_every_event_has_its_heading() -> None:
    assert {cls.__name__ for cls in _event_classes()} <= headings("reference/events.md")


def test_every_field_of_an_event_is_listed() -> None:
    text = (DOCS / "reference/events.md").read_text()
    for cls in _event_classes():
        section = text.split(f"## `{cls.__name__}`\n", 1)[1].split("\n## ", 1)[0]
        assert [f.name for f in dataclasses.fields(cls) if f"`{f.name}`" not in section] == [], cls.__name__


def test_every_setting_has_its_heading_its_variables_and_its_default() -> None:
    from headgate.config import setting_fields, variables_of

    written = headings("reference/settings.md")
    text = (DOCS / "reference/settings.md").read_text()
    for name in setting_fields():
        assert name in written, name
        assert [v for v in variables_of(name) if f"`{v}`" not in text] == []


def test_every_column_of_the_store_is_explained_in_its_order() -> None:
    text = (DOCS / "reference/storage.md").read_text().split("## Columns", 1)[1].split("\n## ", 1)[0]
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == [field.name for field in dataclasses.fields(Sample)]


def test_every_metric_has_its_heading() -> None:
    from headgate.telemetry import METRICS

    names = {getattr(metric, "name", metric) for metric in METRICS}
    assert names
    assert names <= headings("reference/monitoring.md")


def test_every_environment_has_its_heading() -> None:
    from importlib.metadata import entry_points

    names = {entry.name for entry in entry_points(group="headgate.environments")}
    assert names
    assert names <= headings("reference/environments.md")


def test_the_generated_pages_are_those_that_the_code_gives(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    monkeypatch.setattr(sys, "argv", ["reference.py"])  # a usage line has the name of the program
    status = importlib.import_module("reference").main(["--check"])
    assert status == 0, capsys.readouterr().out


def test_every_parameter_of_a_flow_and_every_field_of_a_block_is_explained() -> None:
    text = (DOCS / "reference/prefect.md").read_text()
    sections = {part.partition("\n")[0]: part for part in re.split(r"(?m)^#{2,3} ", text)}
    shared = set(re.findall(r"`(\w+)`", "".join(re.findall(r"(?m)^\| (`[^|]*)\|", sections["Flows"]))))
    modules = [importlib.import_module(f"flows.{path.stem}") for path in (ROOT / "flows").glob("[a-z]*.py")]
    found = [flow for module in modules for flow in vars(module).values() if isinstance(flow, Flow)]
    assert found
    for flow in found:
        names = set(inspect.signature(flow.fn).parameters) - shared
        assert [name for name in sorted(names) if f"`{name}`" not in sections[flow.name]] == [], flow.name
    sections["ReportStore"] += sections["SampleStore"]  # "the fields of a SampleStore, and"
    for block in (value for value in vars(blocks).values() if inspect.isclass(value) and issubclass(value, Block)):
        names = {name for name in block.model_fields if not name.startswith("_") and name not in Block.model_fields}
        assert [name for name in sorted(names) if f"`{name}`" not in sections[block.__name__]] == [], block.__name__
