"""Run tests in a virtual machine, as root with all capabilities: Debian's cloud kernel on qemu.

The kernel grows a mounted ext4 only for CAP_SYS_RESOURCE, which root does not have in every
container. In the machine it has. The guest reads all files of this machine through virtiofs; what it
writes stays in its memory. By default qemu emulates the processor, which needs no /dev/kvm.

Exit status: that of pytest; 1 also if the machine does not boot or does not end in time.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

ROOT = Path(__file__).parents[2]
PACKAGES = "qemu-system-x86 linux-image-cloud-amd64 busybox-static"
MEMORY_MIB = 4096
_MODULES = ("virtio_pci", "virtiofs", "overlay", "loop", "xfs")
_STATUS = re.compile(r"^tests\.vm: status (\d+)\s*$", re.MULTILINE)
_SOCKET_PATIENCE_S = 10.0
_INIT = """#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
while read -r each; do $b insmod "/modules/$each" || echo "$each cannot be loaded"; done < /order
$b mount -t virtiofs -o ro host /host &&
$b mount -t tmpfs -o size=75% tmpfs /above && $b mkdir /above/files /above/work &&
$b mount -t overlay -o lowerdir=/host,upperdir=/above/files,workdir=/above/work overlay /new &&
for each in proc:proc sysfs:sys devtmpfs:dev tmpfs:run tmpfs:tmp tmpfs:dev/shm; do
  [ -d "/new/${each#*:}" ] || $b mkdir "/new/${each#*:}"
  $b mount -t "${each%%:*}" "${each%%:*}" "/new/${each#*:}"
done
$b mount -t cgroup2 cgroup2 /new/sys/fs/cgroup
$b ip link set lo up
$b chroot /new /bin/sh < /inside
echo "tests.vm: status $?"
$b poweroff -f
"""


@dataclass(frozen=True, slots=True)
class Programs:
    """What a machine is made of.

    Attributes:
        folder: under which Debian's packages are: "/", or where they were unpacked.
    """

    folder: Path

    @property
    def qemu(self) -> Path:
        """The emulator."""
        return self.folder / "usr/bin/qemu-system-x86_64"

    @property
    def virtiofsd(self) -> Path:
        """What serves files to the guest."""
        return self.folder / "usr/lib/qemu/virtiofsd"

    @property
    def kernels(self) -> list[Path]:
        """All kernels, the newest last."""
        return sorted((self.folder / "boot").glob("vmlinuz-*-cloud-amd64"))

    @property
    def environment(self) -> dict[str, str]:
        """With their libraries."""
        libraries = [self.folder / each / "x86_64-linux-gnu" for each in ("usr/lib", "lib")]
        return {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, libraries))}

    def missing(self) -> str:
        """What is not there, in a sentence; "" if all of it is."""
        if os.geteuid() != 0:
            return "the machine's files are served to the guest by root: run it as root"
        there = self.qemu.exists() and self.virtiofsd.exists() and self.kernels
        if not there or shutil.which("busybox") is None:
            return f"these packages of Debian are needed: {PACKAGES} (or --packages FOLDER)"
        return ""


def in_order(names: Sequence[str], modules: Path) -> list[Path]:
    """Kernel modules with those that they depend on before them; without those that are built in."""
    files = {each.stem.replace("-", "_"): each for each in modules.rglob("*.ko")}
    order: list[str] = []

    def add(name: str) -> None:
        if name in order or name not in files:
            return
        found = re.search(rb"\0depends=([^\0]+)\0", files[name].read_bytes())
        for each in found[1].decode().split(",") if found else ():
            add(each.replace("-", "_"))
        order.append(name)

    for name in names:
        add(name)
    return [files[each] for each in order]


def command_of(tests: Sequence[str]) -> str:
    """What the guest's shell does."""
    return (
        f"cd {shlex.quote(str(ROOT))} && export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root && uname -r &&"
        f" .venv/bin/python -m pytest -v -rs -p no:cacheprovider {shlex.join(tests)}\n"
    )


def status_in(output: str) -> int | None:
    """The exit status that the guest's last words name; None if it has not come that far."""
    found = _STATUS.findall(output)
    return int(found[-1]) if found else None


def write_initrd(path: Path, kernel: Path, programs: Programs, command: str) -> None:
    """Write the guest's first files: busybox, modules and what is to be done."""
    folder = path.parent / "initrd"
    for name in ("bin", "modules", "proc", "host", "above", "new", "dev"):
        (folder / name).mkdir(parents=True)
    busybox = shutil.which("busybox")
    assert busybox is not None  # Programs.missing
    shutil.copy(busybox, folder / "bin/busybox")
    version = kernel.name.removeprefix("vmlinuz-")
    modules = in_order(_MODULES, programs.folder / "lib/modules" / version)
    for module in modules:
        shutil.copy(module, folder / "modules" / module.name)
    (folder / "order").write_text("".join(f"{module.name}\n" for module in modules))
    (folder / "inside").write_text(command)
    (folder / "init").write_text(_INIT)
    (folder / "init").chmod(0o755)
    pack = "busybox find . | busybox cpio -o -H newc"
    with path.open("wb") as packed:
        subprocess.run(
            ["sh", "-c", pack], cwd=folder, stdout=packed, stderr=subprocess.DEVNULL, check=True
        )


@contextmanager
def files_served(programs: Programs, folder: Path) -> Iterator[Path]:
    """Serve this machine's files; the socket."""
    path = folder / "files.sock"
    options = ["-o", "source=/", "-o", "sandbox=chroot"]
    with (folder / "virtiofsd.log").open("wb") as log:
        process = subprocess.Popen(
            [programs.virtiofsd, f"--socket-path={path}", *options],
            env=programs.environment,
            stdout=log,
            stderr=log,
        )
    try:
        until_s = time.monotonic() + _SOCKET_PATIENCE_S
        while not path.exists():
            if process.poll() is not None or time.monotonic() > until_s:
                text = (folder / "virtiofsd.log").read_text().strip()
                raise click.ClickException(f"virtiofsd serves no files: {text}")
            time.sleep(0.05)
        yield path
    finally:
        process.terminate()
        process.wait()


def machine(programs: Programs, folder: Path, accelerator: str, files: Path) -> list[str]:
    """The command of the machine."""
    shares = [programs.folder / "usr/share" / each for each in ("qemu", "seabios")]
    memory = f"memory-backend-memfd,id=memory,size={MEMORY_MIB}M,share=on"
    return [
        *(str(programs.qemu), "-nodefaults", "-no-reboot", "-nographic", "-serial", "stdio"),
        *(word for each in shares for word in ("-L", str(each))),
        *("-machine", f"q35,accel={accelerator}", "-cpu", "max", "-smp", "2"),
        *("-m", str(MEMORY_MIB), "-object", memory, "-numa", "node,memdev=memory"),
        *("-chardev", f"socket,id=files,path={files}"),
        *("-device", "vhost-user-fs-pci,chardev=files,tag=host"),
        *("-kernel", str(programs.kernels[-1]), "-initrd", str(folder / "initrd.cpio")),
        *("-append", "console=ttyS0 quiet loglevel=3 panic=-1"),
    ]


@click.command(help=__doc__, context_settings={"ignore_unknown_options": True})
@click.argument("tests", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--packages",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=Path("/"),
    help="Where Debian's packages are unpacked (dpkg -x), if they are not installed.",
)
@click.option("--accelerator", type=click.Choice(["tcg", "kvm"]), default="tcg", show_default=True)
@click.option("--timeout", "timeout_s", type=click.IntRange(1), default=900, show_default=True)
def main(*, tests: tuple[str, ...], packages: Path, accelerator: str, timeout_s: int) -> None:
    """Run them."""
    programs = Programs(packages.absolute())
    if why := programs.missing():
        raise click.ClickException(why)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_initrd(folder / "initrd.cpio", programs.kernels[-1], programs, command_of(tests))
        with files_served(programs, folder) as files:
            command = machine(programs, folder, accelerator, files)
            output = _followed(command, programs.environment, timeout_s)
    status = status_in(output)
    if status is None:
        raise click.ClickException(f"the machine did not come to its end in {timeout_s} s")
    sys.exit(status)


def _followed(command: Sequence[str], environment: dict[str, str], timeout_s: int) -> str:
    """What the machine prints, which is printed here too."""
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    signal.signal(signal.SIGALRM, lambda *_: process.kill())
    signal.alarm(timeout_s)
    lines: list[str] = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            click.echo(line, nl=False)
    finally:
        signal.alarm(0)
        process.kill()
        process.wait()
    return "".join(lines)


if __name__ == "__main__":
    main()
