"""Adapters to collections: one module for each package whose environments are played under its own prefix."""

# Collections are found by entry points only, each in a process that has its package.
__all__: list[str] = []
