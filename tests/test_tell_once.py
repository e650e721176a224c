"""A text about a thing is news once, until it changes, is forgotten or is old."""

import pytest

from provisioner.tell_once import TellOnce


class Time:
    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def time() -> Time:
    return Time()


def test_a_text_is_news_once_for_each_thing(time: Time):
    said = TellOnce(time)

    assert [said.is_news(about, "full") for about in ("a", "a", "b")] == [True, False, True]
    assert "a" in said
    assert "c" not in said


def test_another_text_is_news_and_so_is_the_first_one_after_it(time: Time):
    said = TellOnce(time)

    assert [said.is_news("a", text) for text in ("full", "busy", "full")] == [True] * 3


def test_the_same_text_is_news_again_after_a_while(time: Time):
    said = TellOnce(time)
    said.is_news("a", "full", again_s=60)
    time.s = 59
    early = said.is_news("a", "full", again_s=60)
    time.s = 60

    assert not early
    assert said.is_news("a", "full", again_s=60)
    assert not said.is_news("a", "full", again_s=60)


def test_what_is_remembered_is_bounded(time: Time):
    said = TellOnce(time, most=2)
    for each in ("a", "b", "c"):
        said.is_news(each)

    assert [each in said for each in ("a", "b", "c")] == [False, True, True]


def test_what_is_forgotten_is_news(time: Time):
    said = TellOnce(time)
    for each in ("a", "b", "c"):
        said.is_news(each)
    said.forget("a")
    said.forget_all_but({"a", "b"})

    assert [said.is_news(each) for each in ("a", "b", "c")] == [True, False, True]
    said.clear()
    assert said.is_news("b")
