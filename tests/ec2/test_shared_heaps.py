import platform

from provisioner.ec2.calls import share_heaps


def test_glibc_takes_the_settings_and_other_libraries_are_left_alone() -> None:
    assert share_heaps() is (platform.libc_ver()[0] == "glibc")
