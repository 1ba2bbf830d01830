"""The templates of pages that need nothing else."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from headgate.reports import wording


def template(name: str) -> Template:
    """Return a template of this room; what it shows is escaped, and what it is not given is an error."""
    return _environment().get_template(name)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("headgate.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    for writer in (wording.percent, wording.count):
        environment.filters[writer.__name__] = writer
    return environment
