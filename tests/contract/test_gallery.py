"""The examples run as a reader runs them, in less than a minute of CPU time, without
warnings, and end with their number.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))


def test_every_example_is_listed():
    listed = (ROOT / "examples/README.md").read_text(encoding="utf-8")
    for name in EXAMPLES:
        assert f"({name}.py)" in listed


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_in_a_minute_and_its_number_is_right(name, tmp_path):
    before = os.times()
    command = [sys.executable, "-W", "error::UserWarning", ROOT / f"examples/{name}.py"]
    env = os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    if done.stdout.startswith("skipped: "):
        pytest.skip(done.stdout.strip())
    after = os.times()
    assert done.stdout.strip() and done.stderr == ""
    assert (
        after.children_user
        + after.children_system
        - before.children_user
        - before.children_system
        < 60
    )
