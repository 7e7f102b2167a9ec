"""Write docs/results/promises.md: what is promised, the tests of each promise, and the
counts of the last `make chaos`.

    python tools/promises.py [--check]

The counts come from benchmarks/results/chaos.csv, the tests of each part of a page from
tools/promises.toml. With --check, nothing is written; the
exit code is 1 if the page is out of date or a test does not exist.
"""

from __future__ import annotations

import csv
import re
import sys
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results" / "promises.md"
PARTS = tomllib.loads((ROOT / "tools" / "promises.toml").read_text(encoding="utf-8"))
COUNTS = ROOT / "benchmarks" / "results" / "chaos.csv"

HEAD = """# What is promised and how it is tested

Each promise has tests, which run with `make test` (the slow ones with `make test-all`). \
`make chaos` breaks things on purpose, at
random, and counts what happens. The counts below are those of its last run; \
`make chaos` writes them here.

- **survived**: the result was right, to the bit.
- **refused**: an error of cavity said what was wrong.
- **silent**: a result was wrong without an error, or lost. Must be 0, or `make chaos` fails.
- **broken**: another error, a crash or a hang. Must be 0, or `make chaos` fails.

"""

# (promise, kinds of make chaos, tests)
PROMISES: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = [
    (
        "A fit that is killed at any moment continues from its checkpoint and gives "
        "the same model, to the bit "
        "(L-BFGS continues from its best point).",
        ("kill-fit",),
        (
            "tests/training/test_checkpoints.py::test_kill_nine_at_any_moment_leaves_a_checkpoint_that_ends_as_if_it_had_not_been",
            "tests/distributed/test_equality.py::test_a_rank_that_dies_under_torchrun_costs_a_restart_and_nothing_else",
        ),
    ),
    (
        "A save that is killed leaves the old file or the new one, complete. Readers "
        "never find a broken file.",
        ("kill-save", "two-writers"),
        (
            "tests/saved/test_writing.py::test_two_writers_and_two_readers_never_meet_a_broken_file",
        ),
    ),
    (
        "SIGTERM and Ctrl-C keep the model of `cavity fit`.",
        ("terminate",),
        (
            "tests/cli/test_interrupts.py::test_an_interrupt_saves_the_model_as_it_stands_and_ends_with_its_code",
            "tests/cli/test_interrupts.py::test_a_signal_after_training_does_not_lose_the_model",
            "tests/cli/test_interrupts.py::test_a_signal_at_any_line_after_training_does_not_lose_the_model",
        ),
    ),
    (
        "A full disk costs neither the fit nor an older file.",
        ("full-disk",),
        (
            "tests/training/test_checkpoints.py::test_a_full_disk_leaves_the_last_good_checkpoint_and_the_fit_goes_on",
            "tests/saved/test_writing.py::test_a_path_that_cannot_be_written_is_a_clear_error",
        ),
    ),
    (
        "A damaged model file or checkpoint is refused: every file has a SHA-256 "
        "digest, which is checked on reading.",
        ("flip-model", "flip-checkpoint"),
        (
            "tests/saved/test_damage.py::test_no_flipped_bit_goes_unnoticed",
            "tests/training/test_checkpoints.py::test_no_flipped_bit_of_a_checkpoint_goes_unnoticed",
            "tests/saved/test_saved.py::test_files_of_older_formats_say_who_wrote_them_and_what_to_do",
        ),
    ),
    (
        "No code from files: a model file is tensors and JSON, and cannot choose where "
        "a later fit writes.",
        (),
        (
            "tests/saved/test_damage.py::test_a_forged_file_is_refused_in_words",
            "tests/saved/test_forged.py::test_a_forged_file_that_loads_predicts_probabilities",
            "tests/saved/test_damage.py::test_no_other_error_escapes",
            "tests/saved/test_damage.py::test_a_sparse_file_does_not_fill_the_memory",
            "tests/saved/test_saved.py::test_a_file_does_not_choose_where_a_later_fit_writes",
        ),
    ),
    (
        "Ranks with other rows, arguments or versions are named before the first step.",
        ("disagreeing-rank",),
        (
            "tests/distributed/test_quarrels.py::test_ranks_that_differ_say_so_before_the_first_step",
        ),
    ),
    (
        "A rank that is killed ends the others within a minute; one that is stopped or "
        "stuck, after the timeout of `join`.",
        ("silent-rank",),
        (
            "tests/distributed/test_quarrels.py::test_a_lost_rank_ends_the_others_within_a_minute",
        ),
    ),
    (
        "A damaged table (CSV, Arrow, Parquet) is read as other readers read it, or "
        "raises `BadInput`.",
        ("damaged-input",),
        (
            "tests/unit/tables/test_preparation.py::test_damaged_tables_raise_our_own_error_or_none",
            "tests/estimators/test_sources.py::test_a_damaged_page_of_a_parquet_file_is_bad_input",
        ),
    ),
    (
        "Rows that change between two passes, or between a run and its resumption, "
        "raise `BadInput` or `BadFile`.",
        (),
        (
            "tests/training/test_changed_rows.py::test_a_run_does_not_resume_on_other_rows_however_few",
        ),
    ),
    (
        "`cavity serve` answers valid requests exactly, even if other clients are "
        "slow, disconnect or send invalid ones.",
        ("request",),
        (
            "tests/cli/test_server.py::test_everyone_gets_the_answers_to_their_own_rows_whoever_leaves",
        ),
    ),
]


def read_counts() -> dict[str, dict[str, str]]:
    """Return the row of each kind."""
    with COUNTS.open(newline="", encoding="utf-8") as file:
        return {row["kind"]: row for row in csv.DictReader(file)}


def make_page(counts: dict[str, dict[str, str]]) -> str:
    """Return the text of the page."""
    parts = [HEAD]
    for i, (promise, kinds, tests) in enumerate(PROMISES, 1):
        parts.append(f"## {i}. {promise}\n\n")
        if kinds:
            parts.append(
                "| `make chaos` | runs | survived | refused | silent | broken "
                "|\n|---|---|---|---|---|---|\n"
            )
        for kind in kinds:
            row = counts[kind]
            cells = [
                f"{int(row[name]):,}"
                for name in ("runs", "survived", "refused", "silent", "broken")
            ]
            parts.append(f"| {kind} | {' | '.join(cells)} |\n")
        parts.append("\n" * bool(kinds) + "Tests:\n\n")
        for test in tests:
            path, name = test.split("::")
            parts.append(f"- `{path}`: `{name}`\n")
        parts.append("\n")
    parts.extend(make_table(page, rows) for page, rows in PARTS.items())
    return "".join(parts).rstrip() + "\n"


def make_table(page: str, rows: list[dict[str, Any]]) -> str:
    """Return the section of a page: each part with its tests and measured figures."""
    link = f"[{page}](../../{page})"
    if page.startswith("docs/"):
        link = f"[{page}](../{page.removeprefix('docs/')})"
    lines = [f"## What {page} promises", "", f"Parts of {link}:", ""]
    lines += ["| part | tests and measured figures |", "|---|---|"]
    for row in rows:
        cells = [f"`{test}`" for test in row["tests"]]
        if "figure" in row:
            cells.append(row["figure"])
        lines.append(f"| {row['part']} | {'<br>'.join(cells)} |")
    return "\n".join(lines) + "\n\n"


def list_tests() -> list[str]:
    """Return every test that the page names."""
    rows = chain.from_iterable(PARTS.values())
    of_parts = chain.from_iterable(row["tests"] for row in rows)
    return [*chain.from_iterable(tests for _, _, tests in PROMISES), *of_parts]


def find_missing_tests() -> list[str]:
    """Return the tests that do not exist."""
    missing = []
    for test in list_tests():
        path, name = test.split("::")
        file = ROOT / path
        if not file.exists() or not re.search(
            rf"^def {name}\(", file.read_text(encoding="utf-8"), re.MULTILINE
        ):
            missing.append(test)
    return missing


def main() -> int:
    missing = find_missing_tests()
    page = make_page(read_counts())
    for test in missing:
        print(f"{test} does not exist: correct tools/promises.py.", file=sys.stderr)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page:
        print(
            f"{PAGE.name} is out of date: run python tools/promises.py.",
            file=sys.stderr,
        )
        return 1
    return int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
