"""Adapters of collections: one module for each package whose environments are played under a prefix of their own."""

# Found by their entry points alone, each in a process that has its package.
__all__: list[str] = []
