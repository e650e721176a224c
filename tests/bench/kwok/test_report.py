"""What a run came to: which goals it missed, and what the table says."""

from tests.bench.kwok.report import Found, Looks, Sample, Told, markdown, memory, missed


def found(**changes: object) -> Found:
    made = Found(500, 51, 3.0)
    made.samples = [Sample(n * 5.0, "a 1", 100.0, 0.0, 0, 0) for n in range(20)]
    made.calls = {"CreateVolume": 100, "DescribeVolumes": 150, "RunInstances": 9}
    made.took_s = {"bound": [1.0, 2.0, 9.0]}
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def test_a_good_run_has_missed_nothing():
    assert missed(found()) == []
    assert markdown(found()).endswith("All goals were reached.")


def test_each_goal_that_is_missed_is_told():
    growing = [Sample(n * 5.0, "a 1", 100.0 + n, 0.0, 0, 0) for n in range(20)]
    assert missed(found(samples=growing)) == [
        "the leader has 118 MiB at the end, 100 at the beginning"
    ]
    assert missed(found(throttled={"CreateVolume": 5})) == []
    assert missed(found(throttled={"CreateVolume": 6})) == ["6 of 250 calls were throttled"]
    assert missed(found(looks=Looks(3.2, 500))) == [
        "3.2 DescribeVolumes a second, with 500 things in transition"
    ]
    assert missed(found(looks=Looks(5.0, 2001))) == []
    assert missed(found(late_in_calm=2)) == ["in calm, 2 waited for more than a minute"]
    assert missed(found(queue_depth=4.0)) == ["at rest, 4 keys are in queues"]
    slow = [Told("outage", 50.0, recovered_s=121.0), Told("leader killed", 9.0, recovered_s=120.0)]
    assert missed(found(troubles=slow)) == ["outage: some still waited 121 s after its end"]
    assert missed(found(wrong=["leaked: vol-1"], errors=["x"])) == ["leaked: vol-1", "x"]


def test_memory_is_that_of_whoever_leads():
    nobody = [Sample(0.0, "", 0.0, 0.0, 0, 0)]
    assert memory([*nobody, *found().samples, *nobody]) == (100.0, 100.0, 100.0)
    assert memory(nobody) == (0.0, 0.0, 0.0)


def test_the_table_tells_times_and_troubles():
    text = markdown(found(troubles=[Told("API server away", 50.0, 3, 7, 42.0)]))

    assert "| until bound: median, p99 | 2.0, 9.0 s of 3 |" in text
    assert "| calls to EC2, throttled | 250, 0 " in text
    assert "| API server away | 3, 7 | 42 |" in text
