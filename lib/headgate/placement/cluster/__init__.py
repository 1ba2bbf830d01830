"""Placement on Ray; no other part of placement needs Ray."""
