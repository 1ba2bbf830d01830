"""The environments built into Headgate, and adapters to collections; found by entry points like those of others."""
