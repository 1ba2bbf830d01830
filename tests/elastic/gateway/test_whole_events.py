"""Streams are cut where their events end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.elastic.gateway.completions import MOST_HELD_BYTES, WholeEvents
from tests.examples import examples

ENDS = (b"\n\n", b"\r\n\r\n")


def test_whole_events_are_passed_on_as_they_come() -> None:
    assert WholeEvents().cut(b"data: 1\n\ndata: 2\n\n") == b"data: 1\n\ndata: 2\n\n"


def test_a_part_of_an_event_waits_for_its_rest() -> None:
    events = WholeEvents()

    assert events.cut(b"data: 1\n\nda") == b"data: 1\n\n"
    assert events.cut(b"ta: 2\n") == b""
    assert events.cut(b"\n") == b"data: 2\n\n"
    assert events.rest() == b""


def test_an_event_without_end_is_passed_on_in_parts() -> None:
    events = WholeEvents()
    long = b"data: " + b"x" * MOST_HELD_BYTES

    assert events.cut(long) == long


@settings(max_examples=examples(40))
@given(
    st.lists(
        st.tuples(st.binary(max_size=8).filter(lambda b: b"\n" not in b and b"\r" not in b), st.sampled_from(ENDS))
    ),
    st.data(),
)
def test_nothing_is_lost_and_only_whole_events_are_given(parts: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    stream = b"".join(b"data: " + text + end for text, end in parts) + data.draw(st.sampled_from([b"", b"data: cut"]))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    events = WholeEvents()
    given_out = b""
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        given_out += events.cut(stream[start:end])
        assert stream.startswith(given_out)
        assert not given_out or given_out.endswith(ENDS)
    assert given_out + events.rest() == stream


@pytest.mark.parametrize("end", ENDS)
def test_what_is_left_at_the_end_is_given(end: bytes) -> None:
    events = WholeEvents()
    events.cut(b"data: 1" + end + b"data: [DONE]")

    assert events.rest() == b"data: [DONE]"
    assert events.rest() == b""


def test_an_event_in_single_bytes_is_not_scanned_again_with_each_of_them() -> None:
    class Counted(bytearray):
        scanned = 0

        def rfind(self, mark: bytes, start: int = 0) -> int:  # type: ignore[override]
            Counted.scanned += len(self) - start
            return super().rfind(mark, start)

    events = WholeEvents()
    events._held = Counted()
    for _ in range(20_000):
        events.cut(b"x")
    assert 0 < Counted.scanned <= 200_000
