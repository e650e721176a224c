from provisioner.ec2.attachments import DEVICE_NAMES, choose_device_name


def test_there_are_127_names_each_once() -> None:
    assert len(set(DEVICE_NAMES)) == len(DEVICE_NAMES) == 127


def test_names_that_windows_cannot_use_and_the_root_are_not_among_them() -> None:
    assert "/dev/xvda" not in DEVICE_NAMES
    assert "/dev/sda1" not in DEVICE_NAMES
    assert not [name for name in DEVICE_NAMES if name.startswith("/dev/xvdc") and len(name) == 10]


def test_names_are_given_away_in_order() -> None:
    assert choose_device_name((), {}) == "/dev/xvdaa"
    assert choose_device_name({"/dev/xvdaa"}, {}) == "/dev/xvdab"


def test_a_name_never_used_goes_before_one_freed() -> None:
    assert choose_device_name((), {"/dev/xvdaa": 5.0}) == "/dev/xvdab"


def test_among_freed_names_the_one_freed_longest_ago_goes_first() -> None:
    freed_at_s = dict.fromkeys(DEVICE_NAMES, 10.0) | {"/dev/xvdbc": 3.0}

    assert choose_device_name((), freed_at_s) == "/dev/xvdbc"


def test_a_name_that_overlaps_with_one_in_use_is_the_last_resort() -> None:
    taken = set(DEVICE_NAMES) - {"/dev/xvdf", "/dev/xvdg", "/dev/sdg"}

    assert choose_device_name(taken, {"/dev/xvdg": 9.0, "/dev/sdg": 9.0}) == "/dev/xvdg"
    assert choose_device_name(taken | {"/dev/xvdg", "/dev/sdg"}, {}) == "/dev/xvdf"


def test_all_127_can_be_in_use_at_once() -> None:
    taken: set[str] = set()
    while (name := choose_device_name(taken, {})) is not None:
        taken.add(name)

    assert taken == set(DEVICE_NAMES)
