"""The parts of the elastic benchmark: the ramp, public traces and short loads, all in virtual time."""

__all__: list[str] = []
