import pytest

from provisioner.ec2.attachments import BAD_FOR_S, DEVICE_NAMES, DeviceBook
from provisioner.model.errors import Ec2Error, Reason


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book(clock: Clock) -> DeviceBook:
    return DeviceBook(clock=clock)


ROOT = {"/dev/xvda": "vol-root"}


def test_two_volumes_on_their_way_get_different_names(book: DeviceBook) -> None:
    assert book.reserve("i-1", "vol-1", ROOT) != book.reserve("i-1", "vol-2", ROOT)


def test_instances_do_not_share_names(book: DeviceBook) -> None:
    assert book.reserve("i-1", "vol-1", ROOT) == book.reserve("i-2", "vol-2", ROOT)


def test_the_same_volume_gets_the_same_name_again(book: DeviceBook) -> None:
    first = book.reserve("i-1", "vol-1", ROOT)
    book.reserve("i-1", "vol-2", ROOT)

    assert book.reserve("i-1", "vol-1", ROOT) == first


def test_after_a_restart_an_attached_volume_keeps_the_name_that_ec2_shows(
    book: DeviceBook,
) -> None:
    assert book.reserve("i-1", "vol-1", {"/dev/xvdbx": "vol-1"}) == "/dev/xvdbx"


def test_a_name_that_ec2_shows_is_not_given_away(book: DeviceBook) -> None:
    in_use = {DEVICE_NAMES[0]: "vol-7"}

    assert book.reserve("i-1", "vol-1", in_use) == DEVICE_NAMES[1]


def test_a_name_just_freed_is_the_last_to_be_used_again(book: DeviceBook) -> None:
    first = book.reserve("i-1", "vol-1", ROOT)
    book.release("i-1", "vol-1")

    assert book.reserve("i-1", "vol-2", ROOT) != first


def test_a_name_freed_by_somebody_else_is_not_used_again_at_once(book: DeviceBook) -> None:
    book.reserve("i-1", "vol-1", {DEVICE_NAMES[1]: "vol-7"})

    assert book.reserve("i-1", "vol-2", {}) == DEVICE_NAMES[2]


def test_a_name_that_ec2_refuses_is_not_tried_again_for_an_hour(
    book: DeviceBook, clock: Clock
) -> None:
    refused = book.reserve("i-1", "vol-1", ROOT)
    book.mark_bad("i-1", refused)

    assert book.reserve("i-1", "vol-1", ROOT) != refused

    clock.now += BAD_FOR_S + 1
    assert book.reserve("i-1", "vol-2", ROOT) == refused


def test_an_instance_without_a_free_name_is_full(book: DeviceBook) -> None:
    in_use = dict.fromkeys(DEVICE_NAMES, "vol-x")

    with pytest.raises(Ec2Error) as caught:
        book.reserve("i-1", "vol-1", in_use)

    assert caught.value.reason is Reason.INSTANCE_FULL


def test_releasing_twice_or_what_was_never_reserved_is_harmless(book: DeviceBook) -> None:
    book.release("i-1", "vol-1")
    book.reserve("i-1", "vol-1", ROOT)
    book.release("i-1", "vol-1")
    book.release("i-1", "vol-1")


def test_instances_that_nothing_happens_on_are_forgotten(book: DeviceBook, clock: Clock) -> None:
    for number in range(100):
        book.reserve(f"i-{number}", "vol-1", ROOT)
        book.release(f"i-{number}", "vol-1")
    clock.now += 7200
    book.reserve("i-new", "vol-1", ROOT)

    assert list(book._pages) == ["i-new"]


def test_names_that_were_freed_long_ago_are_as_if_never_used(
    book: DeviceBook, clock: Clock
) -> None:
    stays = book.reserve("i-1", "vol-stays", ROOT)
    used = []
    for number in range(100):
        clock.now += 600
        used.append(book.reserve("i-1", f"vol-{number}", ROOT))
        book.release("i-1", f"vol-{number}")

    assert stays not in used
    assert used[:6] == list(DEVICE_NAMES[1:7])  # not used again within the hour
    assert set(used) == set(DEVICE_NAMES[1:7])
    assert len(book._pages["i-1"].freed_at) == 6


def test_a_name_that_was_bad_is_forgotten_with_its_time(book: DeviceBook, clock: Clock) -> None:
    book.reserve("i-1", "vol-1", ROOT)
    book.mark_bad("i-1", DEVICE_NAMES[-1])
    clock.now += BAD_FOR_S - 1
    book.reserve("i-2", "vol-2", ROOT)
    assert book._pages["i-1"].bad_until

    clock.now += BAD_FOR_S
    book.reserve("i-2", "vol-3", ROOT)
    assert not book._pages["i-1"].bad_until


def test_a_name_is_kept_until_its_volume_was_attached_for_so_long_that_ec2_tells_it(
    book: DeviceBook, clock: Clock
) -> None:
    attached, on_its_way = (book.reserve("i-1", each, ROOT) for each in ("vol-1", "vol-2"))
    book.attached("i-1", "vol-1")
    clock.now += 599
    early = book.reserve("i-1", "vol-3", ROOT)
    assert early not in {attached, on_its_way}

    clock.now += 7200
    book.reserve("i-2", "vol-4", ROOT)
    assert list(book._pages["i-1"].by_volume) == ["vol-2", "vol-3"]
    shown = {**ROOT, attached: "vol-1"}
    assert book.reserve("i-1", "vol-5", shown) not in {attached, on_its_way, early}


def test_what_is_attached_and_stays_does_not_fill_the_book(book: DeviceBook, clock: Clock) -> None:
    for number in range(1000):
        clock.now += 60
        book.reserve(f"i-{number % 100}", f"vol-{number}", ROOT)
        book.attached(f"i-{number % 100}", f"vol-{number}")

    assert sum(len(page.by_volume) for page in book._pages.values()) <= 20


def test_a_volume_that_is_asked_for_again_keeps_its_name_as_if_it_had_not_been_attached(
    book: DeviceBook, clock: Clock
) -> None:
    name = book.reserve("i-1", "vol-1", ROOT)
    book.attached("i-1", "vol-1")
    assert book.reserve("i-1", "vol-1", ROOT) == name
    clock.now += 7200

    assert book.reserve("i-1", "vol-2", ROOT) != name


def test_a_name_that_was_forgotten_is_used_last_again_after_a_detach(
    book: DeviceBook, clock: Clock
) -> None:
    name = book.reserve("i-1", "vol-1", ROOT)
    book.attached("i-1", "vol-1")
    clock.now += 7200
    book.reserve("i-2", "vol-2", ROOT)

    book.leaving("i-1", "vol-1", name)
    assert book.reserve("i-1", "vol-3", ROOT) != name  # EC2 may no longer show it
    book.release("i-1", "vol-1")
    assert book.reserve("i-1", "vol-4", ROOT) != name


def test_after_a_restart_too_a_name_just_freed_is_used_last(book: DeviceBook) -> None:
    book.leaving("i-1", "vol-1", DEVICE_NAMES[0])
    book.release("i-1", "vol-1")

    assert book.reserve("i-1", "vol-2", ROOT) == DEVICE_NAMES[1]


def test_a_detachment_that_tells_no_name_leaves_nothing_behind(book: DeviceBook) -> None:
    book.leaving("i-1", "vol-1", "")
    book.release("i-1", "vol-1")
    book.leaving("i-of-another-driver", "", "/dev/vdb")
    book.release("i-of-another-driver", "")

    assert not book._pages


def test_a_name_that_others_freed_counts_from_then_though_it_had_been_freed_before(
    book: DeviceBook, clock: Clock
) -> None:
    for number, _ in enumerate(DEVICE_NAMES):
        book.reserve("i-1", f"vol-{number}", {})
        book.release("i-1", f"vol-{number}")
        clock.now += 1
    name = book.reserve("i-1", "vol-again", {})
    book.attached("i-1", "vol-again")
    clock.now += 1200
    book.reserve("i-2", "vol-2", {})  # the book is tidied
    book.reserve("i-1", "vol-3", {name: "vol-again"})

    assert book.reserve("i-1", "vol-4", {}) != name
