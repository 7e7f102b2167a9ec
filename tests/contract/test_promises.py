"""docs/results/promises.md names tests that exist and counts of the last `make chaos`,
none silent or broken.
"""

import re
from itertools import chain
from pathlib import Path

import pytest

from chaos.__main__ import KINDS
from support import load_script

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def promises():
    return load_script("tools/promises.py")


def test_every_test_of_the_page_exists(promises):
    assert promises.find_missing_tests() == []


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/deploy.md", "docs/api.md"])
def test_every_part_of_a_page_that_promises_has_tests(promises, page):
    """Parts are its headings; under "What we promise" they are the bold words."""
    text = (ROOT / page).read_text(encoding="utf-8")
    parts = set(
        re.findall(
            r"^##+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), re.M
        )
    )
    if page == "docs/api.md":
        parts = {part for part in parts if part.startswith("Parameters")}
    if page == "SECURITY.md":
        promised = text.split("## What we promise")[1].split("\n## ")[0]
        parts = {"Dependencies", *re.findall(r"^- \*\*(.*?)\*\*", promised, re.M)}
    assert sorted(row["part"] for row in promises.PARTS[page]) == sorted(parts)
    assert all(row["tests"] for row in promises.PARTS[page])


def test_the_page_has_the_last_counts(promises):
    assert promises.PAGE.read_text(encoding="utf-8") == promises.make_page(
        promises.read_counts()
    )


def test_every_kind_of_fault_belongs_to_a_promise_and_was_counted(promises):
    kinds = chain.from_iterable(kinds for _, kinds, _ in promises.PROMISES)
    assert sorted(kinds) == sorted(KINDS)
    counts = promises.read_counts()
    assert set(counts) == set(KINDS)
    failed = {
        kind for kind, row in counts.items() if int(row["silent"]) or int(row["broken"])
    }
    assert not failed
    kills = sum(int(counts[kind]["runs"]) for kind in ("kill-fit", "kill-save"))
    flips = sum(int(counts[kind]["runs"]) for kind in ("flip-model", "flip-checkpoint"))
    assert kills >= 200 and flips >= 1000
    assert (
        int(counts["damaged-input"]["runs"]) >= 10_000
        and int(counts["request"]["runs"]) >= 10_000
    )
