"""requirements.lock: the packages that users install, in the versions that we test
with, each with hashes.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)


def pins(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    return {
        found[1].lower().replace("_", "-"): found[2] for found in PIN.finditer(text)
    }


def test_versions_are_those_of_the_constraints():
    locked, tested = pins("requirements.lock"), pins("constraints.txt")
    assert len(locked) > 40
    assert {name: locked[name] for name in locked if name in tested} == {
        n: tested[n] for n in locked if n in tested
    }


def test_every_package_that_users_install_is_locked():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    extras = re.search(r"^LOCKED := (.*)$", makefile, re.MULTILINE)[1].split()
    assert {"test", "fuzz", "docs", "bench", "dev", "audit"}.isdisjoint(extras)
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    names = {re.split(r"[>=\[]", requirement)[0] for requirement in wanted} - {"cavity"}
    assert names - set(pins("requirements.lock")) == set()


def test_every_package_has_hashes_and_no_address():
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    for block in re.split(r"^(?=[a-z])", text, flags=re.MULTILINE)[1:]:
        assert "--hash=sha256:" in block, block.splitlines()[0]
    assert "://" not in text
