"""Budgets of a campaign: what each request is asked before it is sent, and which models wait for room."""
