"""Fixtures that more than one folder of tests uses, and the check for leaked asyncio tasks."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Generator, Iterator
from collections.abc import Set as AbstractSet
from contextvars import Context, ContextVar
from pathlib import Path
from types import CoroutineType
from typing import Any
from weakref import WeakKeyDictionary

import pytest
import pytest_asyncio
import structlog
from hypothesis import HealthCheck, settings

from provisioner.sandbox.strict_ec2.client import CREDENTIALS, StrictEc2
from tests import own_mounts, scheduling, skips

# A busy machine is no counterexample.
settings.register_profile("calm", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("calm")

pytest_plugins = ("tests.sandbox.strict_ec2_fixtures",)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where several sessions tell each other what they have used (``tests/cluster/audit.py``)."""
    parser.addoption("--used-rights", type=Path, metavar="FOLDER")


def pytest_configure() -> None:
    """Before anything is mounted or started."""
    own_mounts.enter()
    # Without any configuration, structlog has rich paint each traceback, which takes a fifth of a second.
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], plain])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> scheduling.Scheduling | None:
    """Where there are several processes."""
    return scheduling.scheduler(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Where several processes shared the tests: how long files took, and when each process ended."""
    stats = terminalreporter.stats.values()
    reports = [each for kind in stats for each in kind if isinstance(each, pytest.TestReport)]
    if lines := list(scheduling.timeline(reports)):
        terminalreporter.write_sep("=", "longest files")
        terminalreporter.write_line("\n".join(lines))


@pytest.fixture(autouse=True)
def how_lines_are_logged() -> Iterator[None]:
    """As before each test: commands that a test runs in this process configure it for themselves."""
    before = structlog.get_config()
    yield
    if structlog.get_config() != before:
        structlog.configure(**before)


@pytest.fixture(scope="session")
def strict_ec2_server() -> Iterator[StrictEc2]:
    """One strict EC2 for the whole run."""
    with StrictEc2() as server:
        yield server


@pytest.fixture
def strict_ec2(strict_ec2_server: StrictEc2) -> StrictEc2:
    """The strict EC2, empty, without latency, throttling or faults."""
    strict_ec2_server.reset()
    return strict_ec2_server


@pytest.fixture
def aws_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials of nobody, and no settings of the machine."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_EC2_ENDPOINT", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
async def no_leaked_tasks() -> AsyncIterator[None]:
    """Fail a test that ends while a task of its own still runs."""
    yield
    await _ended()
    _complain(asyncio.all_tasks() - {asyncio.current_task()})


@pytest_asyncio.fixture(loop_scope="module")
async def no_leaked_tasks_in_module_loop() -> AsyncIterator[None]:
    """The same in a module's loop, where tasks of the module's own fixtures go on running.

    Those may start tasks during the test too (stories that run side by side do), so what counts is
    the context in which a task was made, not the time.
    """
    loop = asyncio.get_running_loop()
    if loop.get_task_factory() is None:
        loop.set_task_factory(_remember_test)
    me = object()
    _test.set(me)  # pytest-asyncio hands it on to the fixtures after this one, and to the test
    yield
    await _ended()
    _complain({task for task in asyncio.all_tasks() if _made_in.get(task) is me})


_GRPC_ENDS_S = 5.0
_test: ContextVar[object] = ContextVar("test", default=None)
_made_in: WeakKeyDictionary[asyncio.Future[Any], object] = WeakKeyDictionary()
_FIXTURES = {"function": "no_leaked_tasks", "module": "no_leaked_tasks_in_module_loop"}


def _remember_test(
    loop: asyncio.AbstractEventLoop, coro: Any, context: Context | None = None
) -> asyncio.Task[Any]:
    task = asyncio.Task(coro, loop=loop, context=context)
    _made_in[task] = _test.get() if context is None else context.get(_test)
    return task


async def _ended() -> None:
    # What was cancelled in the last moment may still end by itself.
    for _ in range(3):
        await asyncio.sleep(0)
    # The ends of calls that gRPC serves come by a thread of its own; its coroutines are compiled.
    of_grpc = {t for t in asyncio.all_tasks() if not isinstance(t.get_coro(), CoroutineType)}
    if of_grpc:
        await asyncio.wait(of_grpc, timeout=_GRPC_ENDS_S)


def _complain(tasks: AbstractSet[asyncio.Task[Any] | None]) -> None:
    own = asyncio.current_task()
    leaked = [task.get_name() for task in tasks if task is not None and task is not own]
    assert not leaked, f"tasks nobody waited for: {leaked}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let no test be skipped where CI has seen to what it needs."""
    report = yield
    skips.forbid(report)
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the leak check first, so that it looks after every other fixture has cleaned up.

    First of those that live as long as the test: what lives longer has not cleaned up by then.
    """
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.function):
            marker = item.get_closest_marker("asyncio")
            scope = (marker.kwargs if marker else {}).get("loop_scope") or "function"
            names, known = item.fixturenames, item._fixtureinfo.name2fixturedefs
            longer = [n for n in names if n in known and known[n][-1].scope != "function"]
            # A loop of another scope has no check: KeyError, until somebody writes one.
            names[:] = [*longer, _FIXTURES[scope], *(n for n in names if n not in longer)]
