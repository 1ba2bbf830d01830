"""Elastic pools on a Ray cluster."""
