"""The trace of one run: its clock, and what is still going on at its end."""

from __future__ import annotations

from headgate.telemetry.perfetto.drawing import DRAWN_BY_NAME, NAMES_NOT_DRAWN, Canvas, other
from headgate.telemetry.perfetto.placement_tracks import PlacementTracks
from headgate.telemetry.perfetto.request_tracks import RequestTracks
from headgate.telemetry.perfetto.scene import Fields, Scene
from headgate.telemetry.perfetto.writer import TraceWriter


class RunTrace:
    """Takes the events of one run in order and draws them; `close` draws what is still going on.

    Owned by one conversion. Times come in as the run's monotonic seconds, which do not jump when the machine's clock is
    set; an event without them (a note on dropped ones) counts by its wall time.
    """

    def __init__(self, writer: TraceWriter, run: str, *, begins_at: float, monotonic: float | None) -> None:
        scene = Scene(writer, run)
        self._canvas = Canvas(scene, RequestTracks(scene), PlacementTracks(writer))
        self._offset_s = begins_at - monotonic if monotonic is not None else None
        self._last = begins_at * 1e6

    def take(self, name: str, fields: Fields, monotonic: float | None, since_origin_s: float) -> float:
        """Draw an event; return its time in seconds since the trace's begin."""
        if monotonic is None:
            at = max(self._last, 0.0)
        else:
            if self._offset_s is None:
                self._offset_s = since_origin_s - monotonic
            at = max(0.0, (monotonic + self._offset_s) * 1e6)
        self._last = max(self._last, at)
        if name not in NAMES_NOT_DRAWN:
            DRAWN_BY_NAME.get(name, other)(self._canvas, fields, at, name)
        return at / 1e6

    def close(self) -> None:
        """Draw what is still going on, up to the last event."""
        self._canvas.requests.close(self._last)
        self._canvas.placement.close(self._last)
        self._canvas.scene.close(self._last)
