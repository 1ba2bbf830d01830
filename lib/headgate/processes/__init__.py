"""Programs that run beside this process and never outlive it."""

from headgate.processes.children import KEEPER, ChildProcess, child_process, last_lines

__all__ = ["KEEPER", "ChildProcess", "child_process", "last_lines"]
