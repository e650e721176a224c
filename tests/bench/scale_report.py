"""The part of the table about a large cluster."""

from tests.bench import installed_minute, scale_burst, webhook_report
from tests.bench.scale_stage import Scaled, Stage

HEAD = (
    *("stage", "s", "on the way, s", "CPU of ours, s", "of the API server, s"),
    *("MiB at its end, at most", "longest passes of the loop, CPU ms"),
)


def told(stage: Stage) -> str:
    """One line about a stage, while the others still run."""
    what = "".join(
        f", pass of {slow.cpu_ms:.0f} ms, {slow.garbage_ms:.0f} garbage ({slow.callback})"
        for slow in stage.longest
    )
    return (
        f"{stage.name}: {stage.seconds:.1f} s ({_marks(stage)}), {stage.cpu_s:.1f} s CPU, "
        f"{stage.rest_mib:.0f} MiB, at most {stage.peak_mib:.0f}{what}{_asked(stage)}"
    )


def markdown(found: Scaled) -> str:
    """Title, table, and what the API server was asked."""
    there = found.there
    lines = [HEAD, ("---", *["--:"] * (len(HEAD) - 1)), *map(_row, found.stages)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    title = (
        f"## {there.volumes:,} volumes with claims, {there.attachments:,} attachments, "
        f"{there.nodes:,} nodes"
    )
    before, after = found.load
    how = (
        f"Put into etcd in {found.loading_s:.0f} s. Load of the machine {before:.1f} before, "
        f"{after:.1f} after."
    )
    asked = [f"{s.name}: {_asked(s).lstrip(', ')}." for s in found.stages if s.requests]
    burst = [scale_burst.markdown(found.bursts)] if found.bursts else []
    minute = [installed_minute.markdown(found.installed)] if found.installed else []
    reviews = [webhook_report.answered(found.answered)] if found.answered else []
    return "\n\n".join([title, table, how, *asked, *minute, *burst, *reviews])


def _row(stage: Stage) -> tuple[str, ...]:
    return (
        stage.name,
        f"{stage.seconds:.1f}",
        _marks(stage),
        f"{stage.cpu_s:.1f}",
        f"{stage.api_server_cpu_s:.1f}",
        f"{stage.rest_mib:.0f}, {stage.peak_mib:.0f}",
        _longest(stage),
    )


def _longest(stage: Stage) -> str:
    if not stage.has_passes:
        return ""
    return ", ".join(f"{each.cpu_ms:.0f}" for each in stage.longest) or "below 20"


def _marks(stage: Stage) -> str:
    marks = [f"{what} {at_s:.1f}" for what, at_s in stage.marks.items()]
    if stage.ended is not None:
        marks.append(f"times that the controller ended {stage.ended}")
    return ", ".join(marks)


def _asked(stage: Stage) -> str:
    if not stage.requests:
        return ""
    by_kind = ", ".join(f"{what} {count}" for what, count in stage.requests.most_common())
    mib = "" if stage.received_mib is None else f", {stage.received_mib:.1f} MiB received"
    return f", requests to the API server: {by_kind}{mib}"
