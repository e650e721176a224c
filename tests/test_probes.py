import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge

from provisioner import process
from provisioner.metrics import WrittenGauge
from provisioner.model.errors import StorageError


def fine() -> str:
    return ""


async def fetch(port: int, path: str) -> tuple[int, str]:
    timeout = aiohttp.ClientTimeout(total=3)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.get(f"http://127.0.0.1:{port}{path}") as response,
    ):
        return response.status, await response.text()


async def test_says_that_all_is_well() -> None:
    registry = CollectorRegistry()
    async with process.serve("127.0.0.1:0", registry=registry, healthy=fine, ready=fine) as port:
        assert await fetch(port, "/healthz") == (200, "ok\n")
        assert await fetch(port, "/readyz") == (200, "ok\n")


async def test_says_what_is_wrong() -> None:
    registry = CollectorRegistry()
    async with process.serve(
        "127.0.0.1:0", registry=registry, healthy=fine, ready=lambda: "caches are empty"
    ) as port:
        assert await fetch(port, "/healthz") == (200, "ok\n")
        assert await fetch(port, "/readyz") == (503, "caches are empty\n")


async def test_shows_the_metrics_of_the_registry() -> None:
    registry = CollectorRegistry()
    Counter("volumes_made", "Volumes.", registry=registry).inc(3)
    async with process.serve("127.0.0.1:0", registry=registry, healthy=fine, ready=fine) as port:
        status, text = await fetch(port, "/metrics")

    assert status == 200
    assert "volumes_made_total 3.0" in text


async def test_series_that_are_text_already_are_shown_as_they_are_then() -> None:
    registry = CollectorRegistry()
    Counter("volumes_made", "Volumes.", registry=registry).inc(3)
    gauge = WrittenGauge("volume_usd", "Each volume.", "name")
    written = lambda: gauge.text  # noqa: E731
    async with process.serve(
        "127.0.0.1:0", registry=registry, healthy=fine, ready=fine, written=written
    ) as port:
        _, first = await fetch(port, "/metrics")
        gauge.show({("pv",): 8.0})
        _, then = await fetch(port, "/metrics")
        gauge.show({})
        _, last = await fetch(port, "/metrics")

    shown = 'ebs_provisioner_volume_usd{name="pv"} 8.0'
    assert [shown in each for each in (first, then, last)] == [False, True, False]
    assert all("volumes_made_total 3.0" in each for each in (first, then, last))


async def test_an_address_in_use_is_one_clear_line() -> None:
    registry = CollectorRegistry()
    async with process.serve("127.0.0.1:0", registry=registry, healthy=fine, ready=fine) as port:
        second = process.serve(f"127.0.0.1:{port}", registry=registry, healthy=fine, ready=fine)
        with pytest.raises(StorageError, match=f"on 127.0.0.1:{port}: "):
            await second.__aenter__()


@pytest.mark.parametrize("address", ["", "8080", "here:", "here:http", ":70000", ":-1"])
async def test_a_malformed_address_is_named(address: str) -> None:
    registry = CollectorRegistry()
    with pytest.raises(StorageError, match=f'"{address}" is no address'):
        await process.serve(address, registry=registry, healthy=fine, ready=fine).__aenter__()


async def test_what_has_to_be_measured_is_measured_before_metrics_are_shown() -> None:
    registry = CollectorRegistry()
    gauge = Gauge("fill", "How full.", registry=registry)

    async def measure() -> None:
        gauge.inc()

    async with process.serve(
        "127.0.0.1:0", registry=registry, healthy=fine, ready=fine, measure=measure
    ) as port:
        await fetch(port, "/healthz")
        assert "fill 1.0" in (await fetch(port, "/metrics"))[1]
        assert "fill 2.0" in (await fetch(port, "/metrics"))[1]
