"""The archive that ``helm package`` writes: the chart with what its links lead to."""

import tarfile
from pathlib import Path

from tests.chart.helm import CHART_FOLDER, built, helm, template

pytestmark = built


def test_an_archive_of_the_chart_has_no_links_and_renders_the_same(tmp_path: Path):
    code, _, errors = helm("package", str(CHART_FOLDER), "--destination", str(tmp_path))
    assert code == 0, errors
    [archive] = tmp_path.glob("*.tgz")

    with tarfile.open(archive) as tar:
        assert all(each.isfile() for each in tar)
    values = {"webhook": {"enabled": True}, "grafanaDashboard": {"enabled": True}}
    assert template(values, chart=archive)[1] == template(values)[1] != ""


def test_helm_finds_nothing_wrong_with_the_chart():
    code, output, errors = helm("lint", "--strict", str(CHART_FOLDER))

    assert code == 0, output + errors
    assert "0 chart(s) failed" in output
