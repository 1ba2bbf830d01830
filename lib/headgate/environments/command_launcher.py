"""Runs one untrusted command, such as a shell command, behind the locks of `sandbox_launcher` with these differences.

The command may start processes, which end with it, read and run the system's programs, and write in one folder, which
it sees as /tmp. Runs as a script of a bare interpreter, so it imports only the standard library. Arguments: the folder,
the working directory within it, variables as NAME=value, `--`, and the command. Exit status 125: a lock does not hold,
and the command was not run.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import warnings  # noqa: F401 - imported by `os` on demand, which would fail behind the locks

sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - pathlib costs more than all else

import sandbox_launcher as locks  # type: ignore[import-not-found]

UNAVAILABLE = 125
NEW_PROCESSES, BIND = 0x20000000, 0x1000
HOME = "/tmp"  # noqa: S108 - where the command sees its folder, and nothing else of this machine's /tmp
MEMORY_BYTES = 4 * 1024**3
FILE_BYTES = 100 * 1024**2

RUNNABLE = (
    *("/bin", "/sbin", "/lib", "/lib64", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/lib64", "/usr/libexec"),
    *("/usr/share", "/usr/include"),
)
READABLE = ("ld.so.cache", "alternatives", "passwd", "group", "nsswitch.conf", "localtime", "profile", "profile.d")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8

# Refused: sockets, which could reach services through their files, and calls that grant new rights or inspect other
# processes. Numbers on x86_64 and aarch64; clone3 and io_uring appear absent, so that the filter sees clone's flags.
REFUSED = (
    (41, 198), (101, 117), (165, 40), (166, 39), (155, 41), (161, 51), (272, 97), (308, 268), (321, 280), (248, 217),
    (249, 218), (250, 219), (298, 241), (323, 282), (304, 265), (246, 104), (175, 105), (313, 273), (310, 270),
    (311, 271), (428, 428), (429, 429), (430, 430), (432, 432), (442, 442), (438, 438),
)  # fmt: skip
ABSENT = (435, 425, 426, 427)
NEW_NAMESPACES = 0x7E020000  # CLONE_NEW… of clone


def seccomp_program(machine: str) -> bytes:
    """Return the filter: it refuses the listed system calls, and a foreign one kills the process."""
    column, audit_arch, foreign_abi = locks.ARCHITECTURES[machine]
    step = locks.instruction
    allow, refuse, absent = (
        step(locks.RET, value) for value in (locks.ALLOW, locks.ERRNO | locks.EPERM, locks.ERRNO | locks.ENOSYS)
    )
    code = [step(locks.LD_W_ABS, locks.ARCHITECTURE), step(locks.JEQ, audit_arch, 1, 0), step(locks.RET, locks.KILL)]
    code.append(step(locks.LD_W_ABS, locks.NUMBER))
    if foreign_abi is not None:
        code += [step(locks.JGE, foreign_abi, 0, 1), step(locks.RET, locks.KILL)]
    for numbers in REFUSED:
        code += locks.when_call(numbers[column], [refuse])
    for number in ABSENT:
        code += locks.when_call(number, [absent])
    flags = [step(locks.LD_W_ABS, locks.ARGUMENTS), step(locks.JSET, NEW_NAMESPACES, 0, 1), refuse, allow]
    return b"".join([*code, *locks.when_call(locks.CLONE[column], flags), allow])


def lock(libc: ctypes.CDLL) -> None:
    """Apply the locks to the process that becomes the command."""
    machine = os.uname().machine
    locks.drop_capabilities(libc, machine)
    locks.checked(libc.prctl(locks.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    limits = ((resource.RLIMIT_AS, MEMORY_BYTES), (resource.RLIMIT_FSIZE, FILE_BYTES), (resource.RLIMIT_CORE, 0))
    for which, most in (*limits, (resource.RLIMIT_NOFILE, 512), (resource.RLIMIT_NPROC, 512)):
        resource.setrlimit(which, (most, most))
    granted = dict.fromkeys(RUNNABLE, EXECUTE | READ_FILE | READ_DIR)
    granted |= dict.fromkeys((f"/etc/{name}" for name in READABLE), READ_FILE | READ_DIR)
    granted |= dict.fromkeys(DEVICES, READ_FILE | WRITE_FILE)
    granted[HOME] = locks.EVERYTHING
    if not locks.grant_files(libc, {path: rights for path, rights in granted.items() if os.path.exists(path)}):  # noqa: PTH110 - as above
        raise OSError("no Landlock: files cannot be closed")
    locks.install_filter(libc, seccomp_program(machine))


def waited(child: int) -> int:
    """Return a child's exit status, or 128 plus the signal number if a signal ended it."""
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status if status >= 0 else 128 - status


def main() -> None:
    """Run the command behind the locks; see the module's docstring."""
    folder, begin, *rest = sys.argv[1:]
    at = rest.index("--")
    variables, command = dict(pair.split("=", 1) for pair in rest[:at]), rest[at + 1 :]
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl.argtypes = (ctypes.c_int, *(ctypes.c_ulong,) * 4)
    try:
        locks.checked(0 if locks.enter_namespaces(libc) else -1, "namespaces")
        locks.checked(libc.unshare(NEW_PROCESSES), "a namespace of processes")
        locks.checked(libc.mount(folder.encode(), HOME.encode(), None, BIND, None), "mount")
        if outer := os.fork():
            os._exit(waited(outer))
        # The first process of the namespace: all others end with it, and it ends with its parent outside.
        locks.checked(libc.prctl(locks.PR_SET_PDEATHSIG, locks.SIGKILL, 0, 0, 0), "pdeathsig")
        if inner := os.fork():
            os._exit(waited(inner))
        lock(libc)
    except OSError as error:
        os.write(2, f"locks do not hold: {error}\n".encode())
        os._exit(UNAVAILABLE)
    try:
        os.chdir(os.path.join(HOME, begin))  # noqa: PTH118 - as above
        os.execvpe(command[0], command, {"PATH": "/usr/bin:/bin", "HOME": HOME, "LANG": "C.UTF-8"} | variables)  # noqa: S606 - its purpose
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(127)


if __name__ == "__main__":
    main()
