"""CI tests the lowest versions that pyproject.toml allows."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def lower_bounds(project: dict) -> dict[str, str]:
    """Names and lower bounds of the package, and of the extra `test` with the extras it
    includes.
    """
    extras, wanted, seen = project["optional-dependencies"], ["test"], set()
    requirements = list(project["dependencies"])
    while wanted:
        extra = wanted.pop()
        if extra not in seen:
            seen.add(extra)
            for requirement in extras[extra]:
                inner = re.fullmatch(r"cavity\[(.+)\]", requirement)
                wanted += inner[1].split(",") if inner else []
                requirements += [] if inner else [requirement]
    return dict(requirement.split(">=") for requirement in requirements)


def padded(version: str) -> list[int]:
    return [*map(int, version.split(".")), 0, 0][:3]


def test_the_constraints_are_the_lower_bounds():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    lines = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(
        line.partition("#")[0].strip().split("==")
        for line in lines
        if line and line[0] != "#"
    )
    bounds = lower_bounds(project)
    assert {name: padded(pin) for name, pin in pins.items()} == {
        name: padded(low) for name, low in bounds.items()
    }
