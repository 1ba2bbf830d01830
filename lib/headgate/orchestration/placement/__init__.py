"""Prefect tasks placed on a Ray cluster by priority."""
