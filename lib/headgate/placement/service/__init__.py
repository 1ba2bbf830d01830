"""The ledger at work: journal, timers, and what acts for it in the cluster."""
