"""The parts of the placement benchmark that run on a real Ray cluster of several nodes."""

__all__: list[str] = []
