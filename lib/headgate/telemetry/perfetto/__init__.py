"""Converts a file of events into a trace for Perfetto and chrome://tracing."""

from headgate.telemetry.perfetto.convert import TraceSummary, convert_events

__all__ = ["TraceSummary", "convert_events"]
