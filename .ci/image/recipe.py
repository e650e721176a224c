"""What is in the image.

One image holds all three programs, as the stock driver's does. With one for the node plugin and
one for the others, a node would pull 31 MiB instead of 45 (measured 2026-11-23), and users would
mirror, scan, sign and name two.

Debian 12, because its Python 3.11, e2fsprogs 1.47.0, xfsprogs 6.1.0 and util-linux 2.38.1 are what
all tests of disks run against; Debian supports it until June 2028 (wiki.debian.org/LTS, read
2026-11-23). Packages are named one by one, because dependencies bring more than what runs here
(xfsprogs brings 35 MiB of ICU for xfs_scrub). ``tests/image`` checks that every library that a file
needs is there.
"""

from __future__ import annotations

import re
from typing import Final

PYTHON: Final = "python3.11"
PYTHON_VERSION: Final = "3.11"
# Python's own folder for packages that Debian did not make.
SITE: Final = f"usr/local/lib/{PYTHON}/dist-packages"
SUITE: Final = "bookworm"
# "Nobody", by number, so that runAsNonRoot can tell.
USER: Final = 65532

MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
"""What Debian, Go and OCI call an architecture, and what Linux and wheels call it."""

# The newest glibc that a wheel may ask for is Debian 12's.
MANYLINUX: Final = (*(f"manylinux_2_{minor}" for minor in range(36, 16, -1)), "manylinux2014")

NAME: Final = "ebs-provisioner"
TITLE: Final = "Controller, admission webhook and node plugin of ebs-provisioner"
PROGRAMS: Final = ("ebs-provisioner", "ebs-webhook")

PYTHON_PACKAGES: Final = (
    *("base-files", "gcc-12-base", "libc6", "libgcc-s1", "libstdc++6"),
    *("libbz2-1.0", "libcrypt1", "libexpat1", "libffi8", "liblzma5", "libssl3", "libuuid1"),
    *("libpython3.11-minimal", "libpython3.11-stdlib", "python3.11-minimal", "zlib1g"),
)
DISK_PACKAGES: Final = (
    *("coreutils", "e2fsprogs", "mount", "util-linux", "xfsprogs"),
    *("libblkid1", "libcom-err2", "libext2fs2", "libss2", "libmount1", "libselinux1"),
    *("libpcre2-8-0", "libinih1", "liburcu8"),
    *("libedit2", "libbsd0", "libmd0", "libtinfo6"),
)
# For the copies of a VolumeMove (`copy-files`).
COPY_PACKAGES: Final = ("rsync", "libacl1", "liblz4-1", "libpopt0", "libxxhash0", "libzstd1")
PACKAGES: Final = (*PYTHON_PACKAGES, *DISK_PACKAGES, *COPY_PACKAGES)

# What the node plugin runs, and what helps to examine a damaged volume in its pod. There is no
# shell: `kubectl debug` brings one.
KEPT_PROGRAMS: Final = frozenset(
    {
        *(PYTHON, "blkid", "env", "mount", "sync", "umount"),
        *("badblocks", "debugfs", "dumpe2fs", "e2fsck", "e2image", "fsck.ext3", "fsck.ext4"),
        *("mke2fs", "mkfs.ext3", "mkfs.ext4", "resize2fs", "tune2fs"),
        "rsync",
        *("mkfs.xfs", "xfs_db", "xfs_growfs", "xfs_logprint", "xfs_repair"),
    }
)
_PROGRAM = re.compile(r"usr/s?bin/(?P<name>[^/]+)")
_NOT_TAKEN_PATHS: Final = (
    # Of some packages the documentation is a link to another's, with the copyright in it.
    r"usr/share/(?!doc/[^/]+(/copyright)?$|common-licenses/|xfsprogs/).*",
    r"etc/(apt|cron|default|dpkg|init|issue|pam|profile|security|skel|update-motd).*",
    r"(boot|home|media|mnt|opt|srv|usr/games|usr/include|usr/src|var/backups|var/local).*",
    r"(usr/)?lib/(binfmt|gcc|mime|systemd|tmpfiles|udev|valgrind|xfsprogs).*",
    r"usr/lib/[^/]+/(audit|e2fsprogs|gconv|perl).*",
    r"usr/libexec.*",
    # Modules of Python's that nothing imports, with the libraries that only they need.
    rf"usr/lib/{PYTHON}/lib-dynload/(_codecs_|_curses|_dbm|_sqlite3|_test|_tkinter|_xx).*",
    rf"usr/lib/{PYTHON}/lib-dynload/(nis|ossaudio|readline|xx).*",
    rf"usr/lib/{PYTHON}/(config-|curses|dbm|distutils|idlelib|lib2to3|pydoc_data).*",
    rf"usr/lib/{PYTHON}/(sqlite3|test|tkinter).*",
    rf"usr/lib/{PYTHON}/(turtle|turtledemo|ensurepip|unittest/test)(/.*|\.py)?",
)
_WHEELS_NOT_TAKEN_PATHS: Final = (
    # EC2 and STS are all that the controller calls; botocore describes 440 services.
    r"botocore/data/(?!ec2$|ec2/2016-11-15|sts($|/)|[^/]+\.json$).*",
    r"botocore/data/ec2/2016-11-15/examples.*",
    r"boto3/(data/(?!.*\.json$|ec2($|/))|examples).*",
    # 75 MiB of typed clients: the controller sends and reads its own records.
    r"kubernetes/(aio/)?client/(api|models)/(?!__init__\.py$).+",
    r"grpc/(_cython/.*\.(pyx|pxi|pxd)|aio/.*\.pyi)",
    r".*\.(pxd|pyx|c|h|pyi)",
    r".*/(tests|testing/tests)(/.*)?",
    # Records of pip, which is not in the image.
    r"[^/]+\.dist-info/(INSTALLER|RECORD|REQUESTED|direct_url\.json)",
    r"bin(/.*)?",
)
_NOT_TAKEN: Final = re.compile("|".join(_NOT_TAKEN_PATHS))
_WHEELS_NOT_TAKEN: Final = re.compile("|".join(_WHEELS_NOT_TAKEN_PATHS))


def is_taken(path: str) -> bool:
    """Whether a path of a Debian package (relative, with /usr merged) goes into the image."""
    program = _PROGRAM.fullmatch(path)
    if program is not None:
        return program["name"] in KEPT_PROGRAMS
    return _NOT_TAKEN.fullmatch(path) is None


def is_taken_of_wheels(path: str) -> bool:
    """Whether a path of the unpacked wheels, relative to their folder, goes into the image."""
    return _WHEELS_NOT_TAKEN.fullmatch(path) is None


def launcher(program: str) -> bytes:
    """Return the script that starts one of our programs."""
    module = {"ebs-provisioner": "provisioner.cli", "ebs-webhook": "webhook.cli"}[program]
    return (
        f"#!/usr/bin/{PYTHON} -sP\nimport sys\nfrom {module} import main\nsys.exit(main())\n"
    ).encode()


FILES: Final = {
    "etc/passwd": (
        "root:x:0:0:root:/root:/usr/sbin/nologin\n"
        f"nonroot:x:{USER}:{USER}:nonroot:/nonexistent:/usr/sbin/nologin\n"
    ),
    "etc/group": f"root:x:0:\nnonroot:x:{USER}:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}
_LINKS: Final = {
    # Debian 12's layout (UsrMerge); its packages still name the old paths.
    "bin": "usr/bin",
    "sbin": "usr/sbin",
    "lib": "usr/lib",
    "usr/bin/python3": PYTHON,
}


def links(architecture: str) -> dict[str, str]:
    """Return the links that no package brings, and where they lead."""
    # Only there is the loader of programs in a folder of its own.
    return _LINKS | ({"lib64": "usr/lib64"} if architecture == "amd64" else {})
