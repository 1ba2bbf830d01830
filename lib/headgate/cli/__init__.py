"""The command line `headgate`, and what commands that other packages add print with."""

from headgate.cli.main import EXIT_CODES, build_app, main
from headgate.cli.output import AsJson, console, print_json, print_table, say, write_page

__all__ = ["EXIT_CODES", "AsJson", "build_app", "console", "main", "print_json", "print_table", "say", "write_page"]
