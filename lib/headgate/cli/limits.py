"""`headgate limits show|apply|set|audit`: the limits on requests in flight that Prefect keeps across processes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from headgate.admission import MOST_SLOTS
from headgate.cli.output import CHECK_FAILED, AsJson, counted, print_json, print_table, say
from headgate.core.errors import InvalidInputError, NotFoundError
from headgate.orchestration import (
    FILE_SUFFIXES,
    LimitReport,
    apply_limits,
    audit_limits,
    limit_reports,
    limits_of,
    open_slot_service,
    require_api,
)


def show(
    names: Annotated[tuple[str, ...], Parameter(help="Limits by name. Default: all of Headgate's.")] = (),
    *,
    as_json: AsJson = False,
) -> int:
    """Show limits, the slots that are taken, and which processes hold and want them."""
    require_api("limits")
    reports = asyncio.run(_reports(names))
    if as_json:
        print_json([_document(report) for report in reports])
    else:
        columns = ("limit", "slots", "taken", "held by", "wanted", "blocks", "process")
        print_table(counted(len(reports), "limit"), columns, _rows(reports), right=(1, 2, 3, 4, 5))
    return 0


def apply(
    source: Annotated[str, Parameter(help="An Admission Limits block by name, or a .yaml or .json file.")],
    *,
    as_json: AsJson = False,
) -> int:
    """Create the limits that a block or file names, and set those that exist to its numbers."""

    async def applied() -> dict[str, bool]:
        if not source.endswith(FILE_SUFFIXES):
            require_api("limits")
        rules = (await limits_of(source)).rules()
        require_api("limits")
        async with open_slot_service() as service:
            return await apply_limits(service, rules)

    done = asyncio.run(applied())
    if as_json:
        print_json([{"limit": name, "changed": is_changed} for name, is_changed in done.items()])
    else:
        rows = [(name, "set" if is_changed else "unchanged") for name, is_changed in done.items()]
        print_table(source, ("limit", ""), rows)
    return 0


def set_(
    name: Annotated[str, Parameter(help="Name of the limit.")],
    slots: Annotated[int, Parameter(help="Maximum number of requests in flight, over all processes; 0 admits none.")],
) -> int:
    """Change a limit while it is in use; its processes follow within one renewal of their leases."""
    if not 0 <= slots <= MOST_SLOTS:
        raise InvalidInputError(f"slots must be 0 to {MOST_SLOTS} (got {slots})")
    if not name.strip():
        raise InvalidInputError("no limit is named", next_step="`headgate limits show` lists them.")
    require_api("limits")

    async def changed() -> None:
        async with open_slot_service() as service:
            if await service.limit(name) is None:
                raise NotFoundError(
                    f"there is no limit {name!r}",
                    next_step="`headgate limits show` lists them; `headgate limits apply` creates those of a block.",
                )
            await service.set_limit(name, slots)

    asyncio.run(changed())
    say(f"{name}: {counted(slots, 'slot')}")
    return 0


def audit(
    names: Annotated[tuple[str, ...], Parameter(help="Limits by name. Default: all of Headgate's.")] = (),
    *,
    fix: Annotated[bool, Parameter(help="Set a limit's count to the slots that are held.")] = False,
    as_json: AsJson = False,
) -> int:
    """Compare, twice, the slots that limits count as taken with the leases that processes hold.

    Exit status 4 when they differ and nothing was fixed.
    """
    require_api("limits")

    async def audited() -> list[LimitReport]:
        async with open_slot_service() as service:
            return await audit_limits(service, names, fix=fix)

    found = asyncio.run(audited())
    if as_json:
        print_json([_document(report) | {"fixed": fix} for report in found])
    elif not found:
        say("every limit counts the slots that are held")
    else:
        rows = [(r.name, r.seen.active_slots, r.known, _verdict(r), "fixed" if fix else "") for r in found]
        title = f"{counted(len(found), 'limit')} whose count differs from the slots held"
        print_table(title, ("limit", "taken", "held", "", ""), rows, right=(1, 2))
    return CHECK_FAILED if found and not fix else 0


async def _reports(names: Sequence[str]) -> list[LimitReport]:
    async with open_slot_service() as service:
        reports = await limit_reports(service, names)
    missing = sorted(set(names) - {report.name for report in reports})
    if missing:
        raise NotFoundError(f"there is no limit {missing[0]!r}", next_step="`headgate limits show` lists them.")
    return reports


def _verdict(report: LimitReport) -> str:
    many = abs(report.difference)
    return f"{many} leaked" if report.difference > 0 else f"{many} held but not counted"


def _rows(reports: Sequence[LimitReport]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for report in reports:
        slots: object = report.seen.limit if report.seen.enabled else f"{report.seen.limit} (off)"
        rows.append((report.name, slots, report.seen.active_slots, report.known, "", "", ""))
        for holder in report.holders:
            holding = holder.holdings[report.name]
            rows.append(("", "", "", holding.held, holding.wanted, holding.leases, holder.process))
    return rows


def _document(report: LimitReport) -> dict[str, Any]:
    return {
        "limit": report.name,
        "slots": report.seen.limit,
        "enabled": report.seen.enabled,
        "taken": report.seen.active_slots,
        "held": report.known,
        "holders": [
            {
                "process": holder.process,
                "held": holder.holdings[report.name].held,
                "wanted": holder.holdings[report.name].wanted,
                "blocks": holder.holdings[report.name].leases,
                "age_s": round(holder.age_s, 1),
            }
            for holder in report.holders
        ],
    }
