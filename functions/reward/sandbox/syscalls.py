"""Numbers of the system calls that a sandboxed interpreter may make. All others fail with EPERM.

Calls by path are held to the private folder by Landlock. Not here, on purpose: sockets, ptrace and process_vm_*, mount
and namespaces, execve and fork (one process), io_uring and bpf, what changes files by path without opening them
(truncate, chmod, chown, utime, setxattr), and what acts on another process by its id.
"""

from collections.abc import Mapping
from types import MappingProxyType

_X86_64_AND_AARCH64 = """
    read=0/63 write=1/64 readv=19/65 writev=20/66 pread64=17/67 pwrite64=18/68 preadv=295/69 pwritev=296/70
    preadv2=327/286 pwritev2=328/287 openat=257/56 close=3/57 close_range=436/436 fstat=5/80 newfstatat=262/79
    statx=332/291 statfs=137/43 fstatfs=138/44 faccessat=269/48 faccessat2=439/439 lseek=8/62 mmap=9/222
    munmap=11/215 mprotect=10/226 mremap=25/216 madvise=28/233 brk=12/214 msync=26/227 mincore=27/232
    rt_sigaction=13/134 rt_sigprocmask=14/135 rt_sigreturn=15/139 rt_sigpending=127/136 rt_sigtimedwait=128/137
    rt_sigsuspend=130/133 sigaltstack=131/132 ppoll=271/73 pselect6=270/72 epoll_create1=291/20 epoll_ctl=233/21
    epoll_pwait=281/22 eventfd2=290/19 pipe2=293/59 dup=32/23 dup3=292/24 flock=73/32 fsync=74/82
    fdatasync=75/83 ftruncate=77/46 fallocate=285/47 fadvise64=221/223 getdents64=217/61 getcwd=79/17 chdir=80/49
    fchdir=81/50 mkdirat=258/34 unlinkat=263/35 renameat=264/38 renameat2=316/276 symlinkat=266/36 readlinkat=267/78
    umask=95/166 getpid=39/172 gettid=186/178 getppid=110/173 getuid=102/174 geteuid=107/175 getgid=104/176
    getegid=108/177 getresuid=118/148 getresgid=120/150 getgroups=115/158 getpgid=121/155 getsid=124/156 uname=63/160
    sysinfo=99/179 times=100/153 getrusage=98/165 gettimeofday=96/169 clock_gettime=228/113 clock_getres=229/114
    clock_nanosleep=230/115 nanosleep=35/101 sched_yield=24/124 sched_getaffinity=204/123 sched_getparam=143/121
    sched_getscheduler=145/120 futex=202/98 set_robust_list=273/99 get_robust_list=274/100 rseq=334/293
    membarrier=324/283 setitimer=38/103 getitimer=36/102 exit=60/93 exit_group=231/94 restart_syscall=219/128
    getrandom=318/278 getrlimit=97/163
"""
_X86_64_ALONE = """
    open=2 stat=4 lstat=6 access=21 poll=7 select=23 epoll_wait=232 pipe=22 dup2=33 mkdir=83 rmdir=84 unlink=87
    rename=82 symlink=88 readlink=89 getpgrp=111 time=201 arch_prctl=158 alarm=37 pause=34
"""
# Allowed with some arguments only.
_GUARDED = "clone=56/220 clone3=435/435 kill=62/129 tgkill=234/131 prlimit64=302/261 ioctl=16/29 fcntl=72/25"


def _read(table: str) -> tuple[dict[str, int], dict[str, int]]:
    x86_64: dict[str, int] = {}
    aarch64: dict[str, int] = {}
    for entry in table.split():
        name, _, numbers = entry.partition("=")
        first, _, second = numbers.partition("/")
        x86_64[name] = int(first)
        if second:
            aarch64[name] = int(second)
    return x86_64, aarch64


def _by_machine(*tables: str) -> Mapping[str, Mapping[str, int]]:
    read = [_read(table) for table in tables]
    return MappingProxyType(
        {
            "x86_64": {name: number for x86_64, _ in read for name, number in x86_64.items()},
            "aarch64": {name: number for _, aarch64 in read for name, number in aarch64.items()},
        }
    )


ALLOWED = _by_machine(_X86_64_AND_AARCH64, _X86_64_ALONE)
"""By machine and name: these may be called with any arguments."""

GUARDED = _by_machine(_GUARDED)
"""By machine and name: the filter looks at their arguments."""

AUDIT_ARCHITECTURE: Mapping[str, int] = MappingProxyType({"x86_64": 0xC000003E, "aarch64": 0xC00000B7})
"""How seccomp names the machines."""
