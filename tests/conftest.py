"""Two tiers, and what a run cost.

Without `--all` tests marked `slow` are left out, a grid of parameters is thinned until
each value of each axis occurs at least once, and property tests draw few examples. With
`--all` everything runs, and property tests draw many.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from multiprocessing import forkserver

import pytest
from hypothesis import settings

WORKERS = pytest.StashKey[float]()

settings.register_profile("few", max_examples=20, derandomize=True, deadline=None)
settings.register_profile("many", max_examples=100, deadline=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all",
        action="store_true",
        help="run slow tests, whole grids and more examples, too",
    )


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("many" if config.getoption("--all") else "few")


@pytest.hookimpl(trylast=True)  # of what -k and -m leave
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    if config.getoption("--all"):
        return
    functions = defaultdict(list)
    for item in items:
        if not item.get_closest_marker("slow"):
            functions[
                item.parent.nodeid, getattr(item, "originalname", item.name)
            ].append(item)
    kept = set(chain.from_iterable(map(thin, functions.values())))
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def thin(grid: list[pytest.Item]) -> list[pytest.Item]:
    """Items that together have every value of every axis, each next one the item with
    the most new values.
    """
    values = {item: axes(item) for item in grid}
    kept = []
    missing = set().union(*values.values())
    while missing:
        kept.append(max(grid, key=lambda item: len(values[item] & missing)))
        missing -= values[kept[-1]]
    return kept


def axes(item: pytest.Item) -> set[tuple]:
    """The item's value on each axis: an axis is one `parametrize`, or a fixture with
    params.
    """
    params = dict(item.callspec.params) if hasattr(item, "callspec") else {}
    found = []
    for mark in item.iter_markers("parametrize"):
        names = mark.args[0]
        names = names.replace(",", " ").split() if isinstance(names, str) else names
        found.append(tuple((name, id(params.pop(name, None))) for name in names))
    return {(), *found, *((name, id(value)) for name, value in params.items())}


@pytest.fixture
def few_trees() -> Iterator[None]:
    """Pools of a few small trees, where any pool will do."""
    from support import with_few_trees

    with with_few_trees():
        yield


def measure_cpu(children: bool) -> float:
    """CPU seconds of this process so far, with or without the children that it waited
    for.
    """
    used = os.times()
    return (
        used.user + used.system + children * (used.children_user + used.children_system)
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    # the processes that it started count when it has ended
    forkserver._forkserver._stop()
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["cpu_seconds"] = measure_cpu(children=True)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """A worker of pytest-xdist has finished."""
    stash = node.config.stash
    output = getattr(node, "workeroutput", {})
    stash[WORKERS] = stash.get(WORKERS, 0.0) + output.get("cpu_seconds", 0.0)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: object, config: pytest.Config
) -> None:
    workers = config.stash.get(WORKERS, 0.0)  # children, too: each counts once
    terminalreporter.write_line(
        f"total {workers + measure_cpu(children=not workers):.0f} CPU s"
    )
