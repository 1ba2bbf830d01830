"""Child processes that never outlive this process."""

from headgate.processes.children import KEEPER, ChildProcess, child_process, last_lines

__all__ = ["KEEPER", "ChildProcess", "child_process", "last_lines"]
