"""The rivals that scenarios run beside Headgate, each in its own best form."""

__all__: list[str] = []
