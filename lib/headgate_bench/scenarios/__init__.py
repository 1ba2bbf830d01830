"""The scenarios, one module each: the module's name is the scenario's, and the registry finds its `SCENARIO`."""

__all__: list[str] = []
