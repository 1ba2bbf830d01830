"""Locks its own process down, then runs one untrusted program in it.

Started by `sandbox.py` as a script of a bare interpreter (`-s -S -P`), so it imports only the standard library. The
kernel enforces the locks and they cannot be undone, so the program can run in the same process: a second
interpreter would double the cost of a run.

1. Namespaces: separate users, network and IPC, and a /proc without other processes, where the kernel lets an ordinary
   user create them. Capabilities are dropped.
2. Limits: CPU time, address space, open files; files cannot grow at all.
3. Landlock, where the kernel has it: only the listed paths (the standard library) can be read, nothing written.
4. System calls: an allow-list of what a program from stdin to stdout needs. No sockets, processes, signals to
   others, or opening for writing. Without this lock nothing runs.

The first line on stdout names the locks that hold. It is written before the program starts: without it, nothing ran.
"""

from __future__ import annotations

import builtins
import ctypes
import os
import resource
import stat
import struct
import sys
import types

SIGKILL = 9  # importing the modules that define such numbers takes longer than the program's start
PR_SET_PDEATHSIG = 1
PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
SECCOMP_MODE_FILTER = 2

# Calls that a program from stdin to stdout needs: name, number on x86_64 and on aarch64, - where it does not exist.
# Newer calls that are missing here fail with ENOSYS, on which C libraries fall back to these: see `seccomp_program`.
_CALLS = """
read 0 63, write 1 64, close 3 57, stat 4 -, fstat 5 80, lstat 6 -, poll 7 -, lseek 8 62, mmap 9 222,
mprotect 10 226, munmap 11 215, brk 12 214, rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139,
ioctl 16 29, pread64 17 67, readv 19 65, writev 20 66, access 21 -, pipe 22 -, select 23 -, sched_yield 24 124,
mremap 25 216, madvise 28 233, dup 32 23, dup2 33 -, nanosleep 35 101, getitimer 36 102, alarm 37 -,
setitimer 38 103, getpid 39 172, exit 60 93, uname 63 160, getcwd 79 17, readlink 89 -, umask 95 166,
gettimeofday 96 169, getrlimit 97 163, getrusage 98 165, sysinfo 99 179, times 100 153, getuid 102 174,
getgid 104 176, geteuid 107 175, getegid 108 177, getppid 110 173, sigaltstack 131 132, arch_prctl 158 -,
gettid 186 178, time 201 -, futex 202 98, sched_getaffinity 204 123, getdents64 217 61, set_tid_address 218 96,
restart_syscall 219 128, fadvise64 221 223, clock_gettime 228 113, clock_getres 229 114, clock_nanosleep 230 115,
exit_group 231 94, newfstatat 262 79, readlinkat 267 78, faccessat 269 48, pselect6 270 72, ppoll 271 73,
set_robust_list 273 99, epoll_create1 291 20, dup3 292 24, pipe2 293 59, getrandom 318 278, membarrier 324 283,
statx 332 291, rseq 334 293, faccessat2 439 439
"""
ALLOWED_CALLS: dict[str, tuple[int, int | None]] = {
    name: (int(ours), None if arm == "-" else int(arm))
    for name, ours, arm in (call.split() for call in _CALLS.split(","))
}
# Calls that are allowed depending on their arguments, in the same form.
OPENAT, OPEN, CLONE, FCNTL = (257, 56), (2, None), (56, 220), (72, 25)
PRLIMIT64, TGKILL, CLONE3, OPENAT2 = (302, 261), (234, 131), (435, 435), (437, 437)
NEWEST_KNOWN_CALL = 450

# machine name -> (column of the tables above, AUDIT_ARCH_…, smallest number of a foreign ABI or None)
ARCHITECTURES = {"x86_64": (0, 0xC000003E, 0x40000000), "aarch64": (1, 0xC00000B7, None)}

LD_W_ABS, JEQ, JGE, JSET, RET = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
EPERM, EACCES, ENOSYS = 1, 13, 38
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data; arguments are 8 bytes, low half first
CLONE_THREAD = 0x00010000
WRITING_FLAGS = 0x3 | 0x40 | 0x200 | 0x400000  # access mode, O_CREAT, O_TRUNC, __O_TMPFILE: equal on both machines
# dup, get and set close-on-exec, get flags; never F_SETOWN, which lets the kernel signal others
SAFE_FCNTL = (0, 1, 2, 3, 1030)


def instruction(code: int, k: int, jump_true: int = 0, jump_false: int = 0) -> bytes:
    """Return one instruction of the classic BPF machine."""
    return struct.pack("=HBBI", code, jump_true, jump_false, k)


def when_call(number: int | None, body: list[bytes]) -> list[bytes]:
    """Return code that runs `body` (which must end in a return) when the system call is `number`."""
    return [] if number is None else [instruction(JEQ, number, 0, len(body)), *body]


def seccomp_program(machine: str, own_pid: int) -> bytes:
    """Return the filter: listed calls are allowed, other known ones refused, newer ones reported as not existing."""
    column, audit_arch, foreign_abi = ARCHITECTURES[machine]
    allow, refuse, absent = (instruction(RET, value) for value in (ALLOW, ERRNO | EPERM, ERRNO | ENOSYS))

    def argument(position: int) -> bytes:
        return instruction(LD_W_ABS, ARGUMENTS + 8 * position)

    def read_only(position: int) -> list[bytes]:
        return [argument(position), instruction(JSET, WRITING_FLAGS, 0, 1), instruction(RET, ERRNO | EACCES), allow]

    def argument_in(position: int, values: tuple[int, ...]) -> list[bytes]:
        tests = [step for value in values for step in (instruction(JEQ, value, 0, 1), allow)]
        return [argument(position), *tests, refuse]

    code = [instruction(LD_W_ABS, ARCHITECTURE), instruction(JEQ, audit_arch, 1, 0), instruction(RET, KILL)]
    code.append(instruction(LD_W_ABS, NUMBER))
    if foreign_abi is not None:
        code += [instruction(JGE, foreign_abi, 0, 1), instruction(RET, KILL)]
    for numbers in ALLOWED_CALLS.values():
        code += when_call(numbers[column], [allow])
    code += when_call(OPENAT[column], read_only(2))
    code += when_call(OPEN[column], read_only(1))
    code += when_call(CLONE[column], [argument(0), instruction(JSET, CLONE_THREAD, 0, 1), allow, refuse])
    code += when_call(FCNTL[column], argument_in(1, SAFE_FCNTL))
    code += when_call(PRLIMIT64[column], argument_in(0, (0,)))
    code += when_call(TGKILL[column], argument_in(0, (own_pid,)))
    code += when_call(CLONE3[column], [absent]) + when_call(OPENAT2[column], [absent])
    code += [instruction(JGE, NEWEST_KNOWN_CALL + 1, 0, 1), absent, refuse]
    return b"".join(code)


def checked(result: int, what: str) -> int:
    """Raise OSError when a call of the C library reports failure."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def enter_namespaces(libc: ctypes.CDLL) -> bool:
    """Replace the host's network, IPC and /proc with empty ones; return False where an ordinary user may not."""
    new_user, new_net, new_ipc, new_mounts = 0x10000000, 0x40000000, 0x08000000, 0x00020000
    if libc.unshare(new_user | new_net | new_ipc | new_mounts) != 0:
        return False
    own_mounts, read_only = 0x40000 | 0x4000, 1 | 2 | 4 | 8  # MS_PRIVATE and MS_REC; no set-uid, devices, programs
    hidden = libc.mount(None, b"/", None, own_mounts, None) or libc.mount(b"none", b"/proc", b"tmpfs", read_only, None)
    return int(hidden) == 0


def drop_capabilities(libc: ctypes.CDLL, machine: str) -> None:
    """Give up every capability, including those within the new namespaces."""
    capset = {"x86_64": 126, "aarch64": 91}[machine]
    header = struct.pack("=Ii", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    checked(libc.syscall(capset, header, bytes(24)), "capset")


def set_limits(cpu_s: int, memory_bytes: int) -> None:
    """Set this process's resource limits. Child processes need none: the filter refuses to start any."""
    for which, soft, hard in (
        (resource.RLIMIT_CPU, cpu_s, cpu_s + 1),
        (resource.RLIMIT_AS, memory_bytes, memory_bytes),
        (resource.RLIMIT_FSIZE, 0, 0),
        (resource.RLIMIT_NOFILE, 64, 64),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        resource.setrlimit(which, (soft, hard))


OF_FILES = 1 << 14 | 1 << 2 | 1 << 1 | 1 << 0
"""Rights that apply to a file, as opposed to a folder: truncate, read, write, execute."""

EVERYTHING = -1
"""All rights over files that the kernel supports."""


def confine_files(libc: ctypes.CDLL, readable: list[str]) -> bool:
    """Allow only reading `readable` files and below folders (with a slash); return False without Landlock."""
    read_file, read_dir = 1 << 2, 1 << 3
    return grant_files(libc, {path: read_file | read_dir * path.endswith("/") for path in readable})


def grant_files(libc: ctypes.CDLL, granted: dict[str, int]) -> bool:
    """Allow these rights at and below paths, and nothing else; return False without Landlock."""
    create_ruleset, add_rule, restrict_self = 444, 445, 446
    version = libc.syscall(create_ruleset, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return False
    rights = (1 << min(12 + version, 15)) - 1  # version 1 has 13 rights over files, versions 2 and 3 add one each
    attributes = struct.pack("=Q", rights)
    ruleset = checked(libc.syscall(create_ruleset, attributes, ctypes.c_size_t(len(attributes)), 0), "landlock ruleset")
    for path, given in granted.items():
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
        possible = rights if stat.S_ISDIR(os.fstat(beneath).st_mode) else rights & OF_FILES
        rule = struct.pack("=Qi", given & possible, beneath)
        checked(libc.syscall(add_rule, ruleset, 1, rule, 0), f"landlock rule for {path}")
        os.close(beneath)
    checked(libc.syscall(restrict_self, ruleset, 0), "landlock")
    os.close(ruleset)
    return True


def filter_calls(libc: ctypes.CDLL, machine: str) -> None:
    """Restrict this process to the system calls that the program needs."""
    install_filter(libc, seccomp_program(machine, os.getpid()))


def install_filter(libc: ctypes.CDLL, code: bytes) -> None:
    """Install a system-call filter for the rest of this process's lifetime."""
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    kept = ctypes.create_string_buffer(program, len(program))
    checked(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(kept), 0, 0), "seccomp")


def lock(cpu_s: int, memory_bytes: int, readable: list[str]) -> list[str]:
    """Apply every lock; return the names of those that hold."""
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        raise OSError(f"no system-call filter for machine type {machine}")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl.argtypes = (ctypes.c_int, *(ctypes.c_ulong,) * 4)
    held = ["calls"]
    if enter_namespaces(libc):
        held.append("namespaces")
    drop_capabilities(libc, machine)
    # Ends the program with the worker that started it. Set after the change of credentials, which would clear it.
    checked(libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0), "pdeathsig")
    checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    set_limits(cpu_s, memory_bytes)
    if confine_files(libc, readable):
        held.append("files")
    filter_calls(libc, machine)
    return held


def yield_to_others(nice: int) -> None:
    """Set niceness `nice`, also for the session: kernels that group processes by session share CPUs between those."""
    nice = max(nice, os.getpriority(os.PRIO_PROCESS, 0))  # the parent process may have raised it already
    os.setpriority(os.PRIO_PROCESS, 0, nice)
    try:
        with open("/proc/self/autogroup", "w") as file:  # noqa: PTH123 - pathlib costs more than the program's start
            file.write(str(nice))
    except OSError:  # there are no such groups, or the kernel limits the rate of changes
        pass


def main() -> None:
    """Lock this process, report the locks, then run the program.

    Arguments: file descriptor of the program, niceness, CPU seconds, bytes of memory, then the paths that it may read.
    """
    descriptor, nice, cpu_s, memory_bytes = (int(argument) for argument in sys.argv[1:5])
    with open(descriptor, encoding="utf-8") as file:  # noqa: PTH123 - a descriptor has no path
        source = file.read()
    yield_to_others(nice)
    held = lock(cpu_s, memory_bytes, sys.argv[5:])
    os.write(1, f"locked: {' '.join(held)}\n".encode())
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv = ["program.py"]
    for name in ("exit", "quit"):  # `site` would add these; programs call them to end
        setattr(builtins, name, sys.exit)
    exec(compile(source, "program.py", "exec"), module.__dict__)  # noqa: S102 - the very purpose, behind the locks


if __name__ == "__main__":
    main()
