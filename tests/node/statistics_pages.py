"""Pages of EBS statistics, byte by byte."""

MAGIC = bytes.fromhex("10b5233c")


def u64(*values: int) -> bytes:
    return b"".join(value.to_bytes(8, "little") for value in values)


def u32(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "little") for value in values)


def histogram(*bins: tuple[int, int, int], told: int | None = None) -> bytes:
    """Bins of lower and upper bound in microseconds and a count."""
    written = b"".join(u64(lower, upper) + u32(count, 0) for lower, upper, count in bins)
    return u64(len(bins) if told is None else told) + written.ljust(64 * 24, b"\0")


def page(
    *,
    magic: bytes = MAGIC,
    version: int = 0,
    counters: tuple[int, ...] = tuple(range(1, 12)),
    reads: bytes = histogram(),
    writes: bytes = histogram(),
) -> bytes:
    head = magic + u32(version) + u64(*counters) + bytes(416)
    assert len(head) == 512
    return (head + reads + writes).ljust(4096, b"\0")
