"""Job traces replayed through the placement ledger in virtual time, beside rivals and bounds."""
