"""The node's part of the table: what was aimed at beside what was measured."""

from statistics import median

from tests.bench.node_numbers import Machine, Mounting, Node, Pods, Way

_MOST_MIB = 65.0
_MOST_S = {True: 2.0, False: 0.5}  # by whether the volume is new
_AGE = {True: "new", False: "existing"}
HEAD = ("what", "target", "measured", "floor", "ours / floor", "")
_MIB = 1024**2
Row = tuple[str, str, str, str, str, str]


def markdown(found: Node) -> str:
    """Title, table, and how it was measured; or why it was not."""
    rows: list[Row] = []
    notes: list[str] = []
    if found.machine is None:
        notes.append(
            "Not measured: memory, start, idle cost and the calls by themselves, because "
            f"{found.why_no_machine}."
        )
    else:
        rows += _machine(found.machine)
        notes += _notes(found.machine, found.busy)
    if found.pods:
        rows += [_pods(each) for each in found.pods]
        notes.append(_pods_note(found.pods))
    else:
        notes.append(f"Not measured: pods on a real kubelet, because {found.why_no_pods}.")
    lines = [HEAD, ("---", "--:", "--:", "--:", "--:", "---"), *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n\n".join(["## Node plugin", *([table] if rows else []), *notes])


def _machine(found: Machine) -> list[Row]:
    idle_ms = found.idle_cpu_s / found.idle_s * 60 * 1000
    resident = f"{found.resident_mib:.1f} MiB"
    weighs = f"memory, {found.volumes} volumes mounted, at rest"
    start = f"{_both(found.starts_s)} of {len(found.starts_s)}"
    return [
        ("start of the process until both sockets answer", "", start, "", "", ""),
        ("memory, registered, no volume", "", f"{found.empty_mib:.1f} MiB", "", "", ""),
        (weighs, f"≤ {_MOST_MIB:g} MiB", resident, "", "", _missed(found.resident_mib, _MOST_MIB)),
        ("memory, at its peak", "", f"{found.peak_mib:.1f} MiB", "", "", ""),
        (f"idle, {found.volumes} volumes", "", f"{idle_ms:.0f} ms CPU a minute", "", "", ""),
        ("one scrape of them", "", f"{found.scrape_cpu_s * 1000:.0f} ms CPU", "", "", ""),
        *(_mounting(each) for each in found.mountings),
    ]


def _mounting(found: Mounting) -> Row:
    most_s = _MOST_S[found.is_new]
    count = len(found.ours.seconds)
    return (
        f"NodeStage + NodePublish, {_AGE[found.is_new]} {found.file_system}, {count} of 4 GiB",
        f"≤ {most_s:g} s",
        _both(found.ours.seconds),
        _both(found.floor.seconds),
        f"{found.ours.median_s / found.floor.median_s:.1f}",
        _missed(found.ours.worst_s, most_s),
    )


def _pods(found: Pods) -> Row:
    most_s = _MOST_S[found.is_new]
    return (
        f"the same on a real kubelet, {_AGE[found.is_new]} ext4, {len(found.rpcs_s)} pods",
        f"≤ {most_s:g} s",
        _both(found.rpcs_s),
        "",
        "",
        _missed(max(found.rpcs_s), most_s),
    )


def _notes(found: Machine, busy: float) -> list[str]:
    disks = "; ".join(
        f"{_AGE[each.is_new]} {each.file_system} {_traffic(each.ours)}, the floor"
        f" {_traffic(each.floor)}"
        for each in found.mountings
    )
    steps = "; ".join(
        f"{_AGE[each.is_new]} {each.file_system} "
        + ", ".join(f"{name} {seconds * 1000:.0f}" for name, seconds in each.steps_s.items())
        for each in found.mountings
    )
    times = (
        "Times: median and slowest, as a caller on the socket sees them. Floor: a program that"
        " does nothing but run the same programs in the same order (blkid, mkfs or e2fsck, mount,"
        " bind) and read the same places for zeros, on equal disks, in turns with ours; its"
        f" medians in ms: {steps}. The machine was {busy:.0%} busy, this bench included."
    )
    on_ebs = (
        "The disks are sparse files behind loop devices, faster than EBS. What went to a disk,"
        " and how long a gp3 volume's 125 MiB/s takes for that at the least, which comes on top"
        f" there: {disks}."
    )
    idle = (
        f"Idle: {found.idle_s:g} s in which nobody calls, scrapes or probes, after"
        f" {found.scrapes} scrapes; the kernel counts CPU time in steps of 10 ms."
    )
    return [times, on_ebs, idle]


def _pods_note(found: tuple[Pods, ...]) -> str:
    told = "; ".join(
        f"{_AGE[each.is_new]} {_both(each.attached_s)} (failed calls: {each.failed})"
        for each in found
    )
    return (
        "On the real kubelet: the seconds of both calls in the plugin's log, pods one after"
        " another. From the VolumeAttachment's word that it is attached to the end of NodePublish,"
        f" with what the kubelet waits for between its looks: {told}."
    )


def _traffic(way: Way) -> str:
    one = way.typical
    return (
        f"{one.read_bytes / _MIB:.1f} MiB in {one.reads} reads and"
        f" {one.written_bytes / _MIB:.1f} MiB in {one.writes} writes ({one.least_s:.2f} s)"
    )


def _both(seconds: list[float]) -> str:
    return f"{median(seconds):.3f} s, {max(seconds):.3f} s"


def _missed(measured: float, most: float) -> str:
    return "" if measured <= most else "**missed**"
