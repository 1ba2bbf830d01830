"""Attacks on Headgate by kind of adversary, each a plain coroutine that returns what succeeded."""

__all__: list[str] = []
