"""The ledger as a service: journal, timers, and the executor of its commands."""
