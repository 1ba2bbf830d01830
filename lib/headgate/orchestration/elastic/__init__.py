"""Elastic pools on a Ray cluster, and the flow that reports on scaling policies."""
