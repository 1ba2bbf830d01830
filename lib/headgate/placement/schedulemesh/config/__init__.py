"""Configuration under ScheduleMesh's path: see `policy`."""

__all__ = ["policy"]
