"""The workflows of CI pin what they use, run commands that exist, and cover the
versions that the package names.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORKFLOWS = {
    path.stem: path.read_text(encoding="utf-8")
    for path in (ROOT / ".github/workflows").glob("*.yml")
}
pytestmark = pytest.mark.skipif(
    not WORKFLOWS, reason="a source distribution has no workflows"
)


@pytest.mark.parametrize("name", ["ci", "nightly", "release"])
def test_actions_are_pinned_by_commit_and_each_has_one_version_everywhere(name):
    used = re.findall(r"uses: (\S+)", WORKFLOWS[name])
    assert used and all(
        re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action) for action in used
    )
    everywhere = set(re.findall(r"uses: (.+)", "\n".join(WORKFLOWS.values())))
    assert len({line.partition("@")[0] for line in everywhere}) == len(everywhere)


def test_workflows_run_targets_of_the_makefile():
    targets = set(
        re.findall(
            r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M
        )
    )
    nightly = re.search(r"target: \[(.*)\]", WORKFLOWS["nightly"])[1].split(", ")
    lines = re.findall(r"run: make ([a-z -]+)", "\n".join(WORKFLOWS.values()))
    made = set(" ".join(lines).split())
    assert made and made | set(nightly) <= targets


def test_ci_tests_every_python_version_that_the_package_names():
    named = re.findall(
        r"Python :: (3\.\d+)\"", (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    )
    tested = re.findall(r"3\.\d+", re.search(r"python: \[(.*)\]", WORKFLOWS["ci"])[1])
    assert named and set(named) <= set(tested)
