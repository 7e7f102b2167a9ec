"""A small version of `make chaos`, and the proof that it notices."""

import csv

import numpy as np
import pytest

from cavity.common import tensor_files
from chaos import __main__ as command
from chaos.counting import Outcome, Tally
from chaos.flips import make_model_flips

SMALL = {
    "kill-save": 2,
    "full-disk": 3,
    "flip-model": 30,
    "flip-checkpoint": 6,
    "two-writers": 10,
    "damaged-input": 80,
}
SLOW = {
    "kill-fit": 2,
    "terminate": 3,
    "silent-rank": 2,
    "disagreeing-rank": 2,
    "request": 200,
}


@pytest.mark.parametrize(
    "kind", [*SMALL, *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW)]
)
def test_no_fault_is_silent_and_none_breaks_anything(kind, tmp_path):
    n = (SMALL | SLOW)[kind]
    tally = command.KINDS[kind][0](n, np.random.default_rng(0), tmp_path)
    assert tally.runs >= n and not tally.failed, tally


def test_every_kind_has_a_small_version():
    assert {*SMALL, *SLOW} == set(command.KINDS)


def test_a_flipped_bit_that_nobody_checks_is_counted_as_silent(tmp_path, monkeypatch):
    monkeypatch.setattr(tensor_files, "_check_digest", lambda *given: None)
    item = make_model_flips(tmp_path, 0)
    assert any(item(i).name == "silent" for i in range(100))  # about one of eleven


@pytest.mark.parametrize(
    "name, code", [("survived", 0), ("refused", 0), ("silent", 1), ("broken", 1)]
)
def test_the_command_counts_prints_and_fails(name, code, tmp_path, capsys):
    def count(n, rng, folder):
        tally = Tally()
        for _ in range(n):
            tally.add(Outcome(name, "why"))
        return tally

    out = tmp_path / "chaos.csv"
    kinds = {"one": (count, 2), "two": (count, 0.1)}
    for only, more in (("one", []), ("two", ["--only", "two"])):
        arguments = ["--runs", "7", "--out", str(out), *more]
        assert command.main(arguments, kinds) == code
        assert only in capsys.readouterr().out
    with out.open() as file:
        rows = {row["kind"]: row for row in csv.DictReader(file)}
    assert (
        rows["one"]["runs"] == rows["one"][name] == "14" and rows["two"]["runs"] == "1"
    )
