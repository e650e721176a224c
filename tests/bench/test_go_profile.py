"""CPU profiles of Kubernetes' programs, as pprof writes them."""

import gzip

from tests.bench import go_profile

NAMES = ("", "cpu", "main.main", "volume.FindMatchingVolume", "runtime.gcBgMarkWorker")


def number(value: int) -> bytes:
    """A varint."""
    text = bytearray()
    while value > 0x7F:
        text.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*text, value])


def field(key: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return number(key << 3) + number(value)
    return number(key << 3 | 2) + number(len(value)) + value


def a_profile() -> bytes:
    """Thirty samples of a comparison called by main, which is inlined there, and ten of garbage."""
    places = field(1, 300) + field(4, field(1, 2)) + field(4, field(1, 1))
    elsewhere = field(1, 301) + field(4, field(1, 3))
    text = b"".join(field(6, name.encode()) for name in NAMES)
    for at, name in enumerate((2, 3, 4), start=1):
        text += field(5, field(1, at) + field(2, name))
    text += field(4, places) + field(4, elsewhere)
    text += field(2, field(1, number(300)) + field(2, number(30) + number(300_000_000)))
    return gzip.compress(text + field(2, field(1, 301) + field(2, 10) + field(2, 7)))


def test_a_functions_share_is_that_of_the_samples_below_it_inlined_or_not():
    profile = go_profile.read(a_profile())

    assert profile.share("FindMatchingVolume") == 0.75
    assert profile.share("main.") == 0.75
    assert profile.share("runtime.") == 0.25
    assert profile.share("nobody") == 0.0


def test_it_listens_on_loopback_alone_and_tells_one_thing_alone():
    argv = go_profile.with_port(
        ["kube-scheduler", "--secure-port=0", "--x=1"], 7, "/certs", "/metrics"
    )
    assert argv == [
        "kube-scheduler",
        "--x=1",
        "--secure-port=7",
        "--bind-address=127.0.0.1",
        "--cert-dir=/certs",
        "--authorization-always-allow-paths=/metrics",
    ]
