"""`headgate limits …` against a real Prefect server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from headgate.orchestration.slots import audit as slot_audit
from tests.cli.conftest import Command
from tests.orchestration.slot_site import Site, asked, busy, set_limit, unique_host, until

pytestmark = pytest.mark.slow


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "limits.yaml"
    host = unique_host()
    path.write_text(f"limits:\n- {{endpoint: {host}, slots: 12}}\n- {{endpoint: 'x.{host}', slots: 0}}\n")
    return path


def _name(file: Path) -> str:
    return f"headgate:{file.read_text().split('endpoint: ')[1].split(',')[0]}"


def test_limits_are_applied_once_and_shown(prefect: object, headgate: Command, file: Path) -> None:
    assert {row["changed"] for row in headgate("limits", "apply", str(file), "--json").document} == {True}
    assert {row["changed"] for row in headgate("limits", "apply", str(file), "--json").document} == {False}
    (shown,) = headgate("limits", "show", _name(file), "--json").document
    assert (shown["slots"], shown["taken"], shown["held"], shown["holders"]) == (12, 0, 0, [])
    assert _name(file) in headgate("limits", "show").out


def test_a_limit_is_changed_by_its_name(prefect: object, headgate: Command, file: Path, audit_file: Path) -> None:
    headgate("limits", "apply", str(file))
    assert headgate("limits", "set", _name(file), "5").status == 0
    changes = headgate("audit", "--what", _name(file), "--json").document
    assert [(one["what"], one["before"], one["after"]) for one in changes] == [
        ("limits create", "", "12"),
        ("limits set", "12", "5"),
    ]
    assert headgate("limits", "show", _name(file), "--json").document[0]["slots"] == 5
    said = headgate("limits", "set", "headgate:nowhere", "5")
    assert (said.status, "there is no limit 'headgate:nowhere'" in said.err) == (2, True)


@pytest.mark.parametrize(
    ("name", "slots", "said"),
    [
        ("headgate:x", "-1", "slots must be 0 to 1000000 (got -1)"),
        ("headgate:x", "99999999999999999999", "slots must be 0 to 1000000"),
        ("headgate:x", "many", "unable to convert"),
        ("", "4", "no limit is named"),
        (" ", "4", "no limit is named"),
    ],
)
def test_a_number_or_name_that_no_limit_can_have_is_refused_before_anybody_is_asked(
    headgate: Command, name: str, slots: str, said: str
) -> None:
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        answer = headgate("limits", "set", "--", name, slots)
    assert answer.status == 2
    assert said in answer.err


def test_slots_that_nobody_holds_are_found_and_mended(
    prefect: object, headgate: Command, file: Path, monkeypatch: pytest.MonkeyPatch, audit_file: Path
) -> None:
    monkeypatch.setattr(slot_audit, "SECOND_LOOK_S", 0.0)
    headgate("limits", "apply", str(file))
    name = _name(file)
    asyncio.run(asked(lambda service: service.set_active_slots(name, 3)))  # type: ignore[arg-type]
    said = headgate("limits", "audit", name)
    assert said.status == 4
    assert "3 leaked" in said.out
    assert headgate("limits", "audit", name, "--fix").status == 0
    (fixed,) = headgate("audit", "--what", "limits fix", "--json").document
    assert (fixed["thing"], fixed["before"], fixed["after"]) == (name, "3 taken", "0 taken")
    assert headgate("limits", "audit", name, "--json").document == []
    assert "every limit counts the slots that are held" in headgate("limits", "audit", name).out


async def test_who_holds_slots_is_shown_while_it_holds_them(prefect: object, headgate: Command) -> None:
    site = Site(unique_host(), 10)
    await set_limit(site.rule.name, 10)
    async with site.open(), busy(site, workers=9, hold_s=0.05):
        await until(lambda: site.in_flight == 9)
        for _ in range(20):  # who holds them is written after they are granted
            said = await asyncio.to_thread(headgate, "limits", "show", site.rule.name, "--json")
            (shown,) = said.document
            if shown["held"] == 10:
                break
    assert (shown["taken"], shown["held"]) == (10, 10)
    (holder,) = shown["holders"]
    assert (holder["held"], holder["blocks"]) == (10, 2)


def test_a_file_with_an_unknown_key_is_refused_with_the_nearest_one(headgate: Command, tmp_path: Path) -> None:
    file = tmp_path / "limits.yaml"
    file.write_text("limit: []")
    said = headgate("limits", "apply", str(file))
    assert (said.status, "did you mean 'limits'?" in said.err) == (2, True)


def test_an_api_that_is_not_there_is_said_in_a_sentence(headgate: Command) -> None:
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        for command in (("show",), ("audit",), ("set", "headgate:x", "4")):
            said = headgate("limits", *command)
            assert said.status == 3
            assert "[orchestrator_unreachable]" in said.err
            assert "Traceback" not in said.err


@pytest.mark.parametrize("words", [("show",), ("set", "headgate:x", "4"), ("audit",), ("apply", "some-block")])
def test_without_a_prefect_api_no_server_is_started_to_be_asked(headgate: Command, words: tuple[str, ...]) -> None:
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        answer = headgate("limits", *words)
    assert answer.status == 3
    assert "limits are kept by Prefect, and no Prefect API is configured" in answer.err
