"""Placement on Ray: the only part of placement that needs it."""
