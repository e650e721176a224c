"""What the kernel says about processes and this machine: CPU seconds, memory, cores."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_UTIME, _STIME = 11, 12  # of /proc/PID/stat, counted from behind the program's name (proc(5))


def cpu_s(pid: int) -> float:
    """CPU seconds, user and system, that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS_PER_S


def busy_s() -> float:
    """CPU seconds that all cores together have been busy, whoever used them."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    idle, waiting = int(fields[3]), int(fields[4])
    return (sum(map(int, fields)) - idle - waiting) / _TICKS_PER_S


def memory_mib(pid: int | str = "self") -> tuple[float, float]:
    """Resident memory of a process, now and at its peak, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    kib = {
        name: int(rest.split()[0])
        for name, _, rest in (line.partition(":") for line in status.splitlines())
        if name in {"VmRSS", "VmHWM"}
    }
    return kib["VmRSS"] / 1024, kib["VmHWM"] / 1024


def forget_peak(pid: int) -> None:
    """Have a process' peak count from now on."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # (proc(5))


def machine() -> str:
    """One paragraph that names this machine, the versions that matter, and the date."""
    info = Path("/proc/cpuinfo").read_text()
    models = [line.partition(":")[2].strip() for line in info.splitlines() if "model name" in line]
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = ", ".join(f"{name} {version(name)}" for name in ("boto3", "kubernetes", "moto"))
    return (
        f"{os.cpu_count()} cores ({models[0] if models else platform.machine()}), {gib:.0f} GiB, "
        f"Linux {platform.release()}, Python {platform.python_version()}, {packages}; "
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, load {os.getloadavg()[0]:.1f} at the start"
    )
