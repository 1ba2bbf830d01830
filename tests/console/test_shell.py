"""What every page has: the frame, who is let in, what is refused, and that nobody watching costs nothing."""

from __future__ import annotations

import pytest

from headgate.console import serve_console
from tests.console.conftest import Serve, Visits, is_accessible, settings


@pytest.fixture(scope="module")
def open_console(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a console on loopback, without tokens; the campaign that it is to show does not run."""
    made = settings(tmp_path_factory.mktemp("console"))
    return serve(serve_console(made, runs=["http://127.0.0.1:9"], port=0))


def test_a_part_that_does_not_answer_is_shown_as_down(open_console: str, visits: Visits) -> None:
    with visits.page() as page:
        page.goto(open_console)
        assert "down since" in page.inner_text("#live")
        page.wait_for_selector("#link.on")
        assert is_accessible(page) == []
