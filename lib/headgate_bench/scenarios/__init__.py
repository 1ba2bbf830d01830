"""The scenarios, one module each; a module's name is its scenario's, and its `SCENARIO` is found by the registry."""

__all__: list[str] = []
