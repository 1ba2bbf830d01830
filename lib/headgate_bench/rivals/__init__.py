"""The rivals that scenarios run next to Headgate, each in its fastest form."""

__all__: list[str] = []
