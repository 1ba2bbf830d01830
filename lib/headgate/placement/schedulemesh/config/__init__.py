"""Configuration under ScheduleMesh's path: see `policy`."""
