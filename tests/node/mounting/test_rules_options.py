"""Which mountOptions volumes are mounted with, and that no other one gets through."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.node.mounting import rules


@pytest.mark.parametrize(
    "option",
    [
        *("noatime", "nodiratime", "relatime", "lazytime", "discard", "sync", "debug", "defaults"),
        *("nodev", "nosuid", "noexec", "ro", "rw", "nofail", "_netdev", "noload", "norecovery"),
        *("commit=30", "data=writeback", "errors=remount-ro", "barrier", "barrier=0", "nobarrier"),
        *("usrquota", "prjquota", "pquota", "usrjquota=aquota.user", "jqfmt=vfsv1", "grpjquota="),
        *("inode64", "nouuid", "logbufs=8", "logbsize=256k", "allocsize=64m", "dax=always"),
        *("x-systemd.device-timeout=10s", "x-systemd.automount", "comment=for-postgres"),
        "context=system_u:object_r:container_file_t:s0:c1",
        'context="system_u:object_r:container_file_t:s0:c1,c2"',
        'rootcontext="system_u:object_r:container_file_t:s0"',
    ],
)
def test_takes_what_classes_of_ebs_volumes_have(option):
    rules.check(option)


@pytest.mark.parametrize(
    "option",
    [
        # A second device.
        *("logdev=/dev/nvme9n1", "rtdev=/dev/nvme9n1", "logdev=nvme9n1"),
        *("journal_path=/dev/nvme9n1", "journal_dev=0x10300", "journal_dev=66304"),
        # Another thing than the whole volume, here.
        *(
            "bind",
            "rbind",
            "move",
            "remount",
            "loop",
            "loop=/dev/loop1",
            "offset=512",
            "sizelimit=1",
        ),
        *("private", "rprivate", "shared", "rshared", "slave", "rslave", "unbindable"),
        *("X-mount.subdir=a", "X-mount.mkdir", "x-mount.mkdir", "x-mount.mkdir=0777"),
        *("X-mount.idmap=b:0:0:1", "X-mount.owner=0", "X-mount.mode=0777", "x-any.thing"),
        *("subvol=a", "sb=131073", "test_dummy_encryption", "verity.hashdevice=/dev/nvme9n1"),
        # A program; a user who may unmount.
        *("helper=x", "uhelper=x", "user", "users", "user=nobody", "owner", "group"),
        # The node.
        *("errors=panic", "abort"),
        # Seen as something else than mount(8) does.
        *("ro=vfs", "ro=recursive", "rw=vfs", "noatime=recursive", "RO", "ro ", "discard=1"),
        # Values.
        *("commit", "commit=", "commit=-1", "commit=1s", "commit=/a", "data=", "data=x", "dax=/a"),
        *("usrjquota=../a", "usrjquota=/a", "x-systemd.requires=/dev/nvme9n1", "comment=a b"),
        *("x-systemd.a=\\", 'x-systemd.a="b"', 'comment="', "x-systemd.a=\n", "comment=é"),
        *('context="a', 'context=a"', 'context="a"b', 'context="a,"', "context=", 'context="a\\"'),
        *("context=a,b", "context=/a", "commit=٣", "", "=", "nosuchoption"),
    ],
)
def test_refuses_all_others(option):
    with pytest.raises(ValueError, match="is not allowed for volumes; remove it from mountOptions"):
        rules.check(option)


def test_the_refusal_tells_an_unknown_option_from_a_known_one_with_another_value():
    with pytest.raises(
        ValueError,
        match=r"'logdev=/dev/a' .* docs/reference/mount-options.md lists the allowed ones",
    ):
        rules.check("logdev=/dev/a")
    with pytest.raises(
        ValueError, match=r"'errors=panic' .* errors is allowed, but not with this value"
    ):
        rules.check("errors=panic")


@given(st.lists(st.text(alphabet='abc=,"', min_size=1), max_size=6))
def test_parts_at_commas_outside_of_quotes_only(flags):
    options = rules.parted(flags)

    assert "".join(options).count('"') <= "".join(flags).count('"')
    for option in options:
        is_parted_wrongly = "," in option and '"' not in option
        assert option
        assert not is_parted_wrongly


def as_mount_parts(text: str) -> list[str]:
    """As libmount does: a quote, if no backslash is before it, begins or ends what is quoted."""
    options, within, before = [""], False, ""
    for character in text:
        if character == '"' and before != "\\":
            within = not within
        if character == "," and not within and before != "\\":
            options.append("")
        else:
            options[-1] += character
        before = character
    return options


@given(
    st.lists(
        st.sampled_from(['x-systemd.a=\\"', "bind", 'comment="', "ro", 'context="a,b"', "\\", '"'])
        | st.text(alphabet='ro=,"\\', max_size=4),
        max_size=6,
    ).map(",".join)
)
def test_mount_parts_what_is_allowed_as_it_was_parted_here(flag):
    options = rules.parted([flag])
    for option in options:
        try:
            rules.check(option)
        except ValueError:
            return

    assert [option for option in as_mount_parts(",".join(options)) if option] == options
