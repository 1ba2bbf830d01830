"""Policies beside the ledger: what others do, and what nobody can."""
