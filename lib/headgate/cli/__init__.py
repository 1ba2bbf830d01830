"""The command line `headgate`."""

from headgate.cli.main import EXIT_CODES, build_app, main

__all__ = ["EXIT_CODES", "build_app", "main"]
