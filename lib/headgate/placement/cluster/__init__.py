"""Placement on Ray; no other part of placement imports Ray."""
