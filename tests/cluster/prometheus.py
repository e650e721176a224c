"""A real Prometheus beside a sandbox: it scrapes our programs and evaluates the rules in a hurry."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from provisioner.sandbox import control_plane, processes
from tests.cluster.replicas import eventually

Json = dict[str, Any]
RULES = Path(__file__).parents[2] / "manifests/monitoring/prometheus-rule.yaml"

FASTER = 60
"""Prometheus looks every second instead of every minute, so that windows are shorter by this."""
LONGEST_FOR_S = 10
"""What is left of ``for``, where a sixtieth of it is more: of six hours, or half an hour."""

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+)([smhd])")


def shortened(duration: str) -> int:
    """A sixtieth of a duration such as 15m, in seconds."""
    found = _DURATION.fullmatch(duration)
    assert found is not None, duration
    return max(1, int(found[1]) * _SECONDS[found[2]] // FASTER)


def hurried(rule: Json) -> Json:
    """The rule with shorter windows, and a shorter ``for``; nothing else is changed."""
    expression = re.sub(
        r"\[(\w+)\]", lambda window: f"[{shortened(window[1])}s]", str(rule["expr"])
    )
    changed = {**rule, "expr": expression}
    if "for" in rule:
        changed["for"] = f"{min(shortened(rule['for']), LONGEST_FOR_S)}s"
    return changed


def _groups() -> list[Json]:
    found: list[Json] = yaml.safe_load(RULES.read_text())["spec"]["groups"]
    return found


def alerts() -> list[str]:
    """The names of all alerts."""
    rules = (rule for group in _groups() for rule in group["rules"])
    return [rule["alert"] for rule in rules if "alert" in rule]


def recorded() -> list[str]:
    """The names that recording rules give."""
    rules = (rule for group in _groups() for rule in group["rules"])
    return [rule["record"] for rule in rules if "record" in rule]


def hurried_rules() -> Json:
    """All rules of the manifests, as a rule file."""
    return {
        "groups": [
            {**each, "rules": [hurried(rule) for rule in each["rules"]]} for each in _groups()
        ]
    }


class Prometheus:
    """One process; what it scrapes can be changed while it runs."""

    def __init__(self, folder: Path, address: str) -> None:
        self._folder = folder
        self._base = f"http://{address}"
        self._targets: dict[str, list[str]] = {}

    def scrape(self, job: str, address: str) -> None:
        """Scrape one more address, under the job that the ServiceMonitors give it."""
        self._targets.setdefault(job, []).append(address)
        listed = [{"targets": those, "labels": {"job": of}} for of, those in self._targets.items()]
        written = self._folder / "targets.new"
        written.write_text(json.dumps(listed))
        written.rename(self._folder / "targets.json")

    async def is_ready(self) -> bool:
        """Whether it has started; until then it answers 503."""
        timeout = aiohttp.ClientTimeout(total=5)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{self._base}/-/ready") as reply,
        ):
            return reply.ok

    async def ask(self, path: str, **query: str) -> Json:
        """The data of an answer of its API."""
        timeout = aiohttp.ClientTimeout(total=30)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{self._base}/api/v1/{path}", params=query) as reply,
        ):
            answer = await reply.json(content_type=None)
        assert answer["status"] == "success", f"{query}: {answer}"
        data: Json = answer["data"]
        return data

    async def query(self, expression: str) -> list[Json]:
        """The samples of an expression now."""
        found: list[Json] = (await self.ask("query", query=expression))["result"]
        return found

    async def alerts(self) -> list[Json]:
        """Those that are pending or firing."""
        found: list[Json] = (await self.ask("alerts"))["alerts"]
        return found

    async def fires(self, name: str, labels: Mapping[str, str], within_s: float) -> Json:
        """Wait until an alert with these labels fires; the alert."""

        async def seen() -> Json | None:
            for each in await self.alerts():
                told = {"alertname": name, **labels}
                if each["state"] == "firing" and told.items() <= each["labels"].items():
                    return each
            return None

        try:
            alert: Json = await eventually(f"{name} fires", seen, within_s, every_s=0.25)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{await self.alerts()}") from error
        return alert


def _begun(folder: Path, argv: Sequence[str]) -> subprocess.Popen[bytes]:
    with (folder / "prometheus.log").open("wb") as log:
        return subprocess.Popen(processes.dying_with_us(argv), cwd=folder, stdout=log, stderr=log)


@contextlib.asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Prometheus]:
    """Run one in a folder, on the machine's loopback."""
    folder.mkdir()
    (folder / "targets.json").write_text("[]")
    (folder / "rules.yaml").write_text(yaml.safe_dump(hurried_rules()))
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [
            {
                "job_name": "ebs",
                # As in the ServiceMonitors: the namespace in the metrics of a volume is its claim's.
                "honor_labels": True,
                "file_sd_configs": [{"files": ["targets.json"], "refresh_interval": "1s"}],
            }
        ],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    address = f"127.0.0.1:{control_plane.free_port()}"
    argv = [
        *("prometheus", "--config.file=prometheus.yaml", "--storage.tsdb.path=data"),
        *(f"--web.listen-address={address}", "--log.level=warn"),
    ]
    process = _begun(folder, argv)
    try:
        one = Prometheus(folder, address)

        async def ready() -> bool:
            assert process.poll() is None, (folder / "prometheus.log").read_text()
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                return await one.is_ready()
            return False

        await eventually("Prometheus is ready", ready)
        yield one
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)
