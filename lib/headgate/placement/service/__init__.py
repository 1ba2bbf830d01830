"""The ledger at work: journal, timers, and the hands that act for it."""
