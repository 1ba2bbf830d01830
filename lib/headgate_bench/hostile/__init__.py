"""Attacks on Headgate by kind of adversary, each a plain coroutine that says what got in."""

__all__: list[str] = []
