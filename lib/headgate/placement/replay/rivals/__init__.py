"""Policies beside the ledger: what others do, and what nobody can."""

__all__ = ["clairvoyant", "fifo", "single_victim"]
