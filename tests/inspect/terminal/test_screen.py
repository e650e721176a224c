"""Where commands print: colours, widths and a sign of life, with a terminal and without."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest

from provisioner.inspect.terminal import screen


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output and standard error are one, of 60 columns."""
    one = SimpleNamespace(isatty=lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(screen, "sys", SimpleNamespace(stdout=one, stderr=one))
    monkeypatch.setenv("COLUMNS", "60")


@pytest.mark.usefixtures("terminal")
def test_a_terminal_has_colours_and_a_width():
    assert screen.emphasized("failed", "red") == "\x1b[31m\x1b[1mfailed\x1b[0m"
    assert (screen.width(), screen.text_width()) == (60, 60)


@pytest.mark.usefixtures("terminal")
def test_who_wants_no_colours_gets_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NO_COLOR", "1")

    assert screen.emphasized("failed", "red") == "failed"


@pytest.mark.usefixtures("terminal")
def test_sentences_do_not_become_wider_than_what_is_easy_to_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "250")

    assert (screen.width(), screen.text_width()) == (250, 100)


def test_a_file_and_a_pipe_get_no_colours_and_lose_nothing():
    assert screen.emphasized("failed", "red") == "failed"
    assert (screen.width(), screen.text_width()) == (None, 100)


@pytest.mark.usefixtures("terminal")
async def test_what_takes_long_gives_a_sign_of_life_and_wipes_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(screen, "_SILENT_FOR_S", 0.0)
    told = ""
    async with asyncio.timeout(10), screen.progress("looking"):
        while "looking" not in told:
            await asyncio.sleep(0)
            told += capsys.readouterr().err

    assert told == "\rlooking … 0 s"
    assert capsys.readouterr() == ("", "\r")  # click leaves out what wipes the line in a file


@pytest.mark.usefixtures("terminal")
async def test_what_is_quick_says_nothing(capsys: pytest.CaptureFixture[str]):
    async with screen.progress("looking"):
        await asyncio.sleep(0)

    assert capsys.readouterr() == ("", "")


async def test_a_log_gets_no_sign_of_life(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(screen, "_SILENT_FOR_S", 0.0)
    async with screen.progress("looking"):
        for _ in range(3):
            await asyncio.sleep(0)

    assert capsys.readouterr() == ("", "")


COMMANDS = "\x1b[2Jfine\x7f\x9b2J\u202e\U000e0041\n"
"""What wipes a terminal, turns text round or hides it."""


def test_what_a_server_answers_commands_no_terminal(capsys: pytest.CaptureFixture[str]):
    screen.warn([f"could not read get nodes/proxy: é {COMMANDS}"])

    said = capsys.readouterr().err
    assert said == (
        "could not read get nodes/proxy: é \\x1b[2Jfine\\x7f\\x9b2J\\u202e\\U000e0041\\n\n"
    )


def test_json_commands_no_terminal_and_says_the_same(capsys: pytest.CaptureFixture[str]):
    screen.show_json([{"é…": COMMANDS}])

    text = capsys.readouterr().out
    assert all(each.isprintable() for each in text.replace("\n", ""))
    assert json.loads(text) == [{"é…": COMMANDS}]
    assert '"é…"' in text
