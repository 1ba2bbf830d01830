"""Headgate: continual, fair and safe sampling of many models on many environments."""

__version__ = "0.1.0"
