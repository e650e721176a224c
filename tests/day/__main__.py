"""``python -m tests.day --volumes 10000``: a day of a cluster's life in virtual time, as JSON.

Each hour is told on standard error. With ``--partial`` a file has, after each hour, what the day
has come to until then; ``tests.day.report`` makes tables of that too.
"""

import argparse
import cProfile
import json
import pstats
import sys
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.day import clocks, report


def main() -> None:
    """Live through a day."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--volumes", type=int, default=10_000)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--troubles", default="day", help="day, none, or one of each")
    parser.add_argument("--partial", type=Path, help="what there is after each hour, as JSON")
    parser.add_argument("--profile", type=Path, help="where to write what took the CPU")
    given = parser.parse_args()
    clocks.install()  # before anything of the product is imported
    story = import_module("tests.day.story")
    clocks.set_wall_clocks()

    def tell(result: Any) -> None:
        found = asdict(result)
        at = datetime.now(UTC).strftime("%H:%M:%S")  # of the real world
        print(at, report.hour_line(found), file=sys.stderr, flush=True)  # noqa: T201
        if given.partial:
            unfinished = given.partial.with_suffix(".new")
            unfinished.write_text(json.dumps(found))
            unfinished.replace(given.partial)

    profile = cProfile.Profile()
    if given.profile:
        profile.enable()
    result = story.live(given.volumes, given.hours, tell, troubles=story.TROUBLES[given.troubles])
    if given.profile:
        profile.disable()
        with given.profile.open("w") as out:
            pstats.Stats(profile, stream=out).sort_stats("tottime").print_stats(60)
    json.dump(result, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
