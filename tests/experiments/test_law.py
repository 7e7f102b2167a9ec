"""The law over generated tables: its tables and its arithmetic."""

import numpy as np
import pytest

from experiments import law
from experiments.law_fits import Shown
from experiments.law_tables import KINDS, TABLES, TOGETHER, Law, list_cases


def test_tables_have_all_kinds_sizes_and_efforts() -> None:
    cases = list_cases()
    assert len({(case.kind, case.rows) for case in cases}) == TABLES
    assert {case.kind for case in cases[:10]} == set(KINDS)
    assert {case.effort for case in cases if case.rows == 3000} == {"balanced", "fast"}


@pytest.mark.parametrize("number", range(len(KINDS)))
def test_a_law_draws_the_same_rows_again_and_groups_stay_whole(number: int) -> None:
    (case,) = list_cases(range(number, number + 1))
    drawn = Law(case).draw_table()
    again = Law(case).draw_table()
    assert len(drawn.X) == case.rows
    np.testing.assert_array_equal(drawn.y, again.y)
    np.testing.assert_array_equal(drawn.target, again.target)
    assert (np.bincount(drawn.group) == TOGETHER.get(case.kind, 1)).all()
    if case.kind == "copies":
        assert len(np.unique(drawn.X, axis=0)) == case.rows // TOGETHER["copies"]


def test_a_number_far_from_fresh_rows_breaks_the_law() -> None:
    near = Shown("log loss", "", 0.5, 0.03, 0.45, 0.04)
    assert near.z == pytest.approx(1.0)
    far = Shown("log loss", "", 0.5, 0.01, 0.4, 0.0)
    rows = [
        {"number": i, "kind": "numbers", "shown": shown.shown, "z": shown.z}
        for i, shown in enumerate([near, far])
    ]
    assert "| 50.0% | +5.50 | too few, too high | 1 numbers +10.0 |" in law.write_table(
        rows
    )


def test_a_run_adds_the_fits_that_its_file_lacks(tmp_path, monkeypatch, capsys) -> None:
    asked = []

    def measure_all(jobs, processes, end):
        asked.append([job[0].number for job in jobs])
        for case, is_regression in jobs[:2]:  # then the time is over
            shown = "regression: rmse" if is_regression else "log loss"
            yield [{**case._asdict(), "shown": shown, "z": 0.0}]

    monkeypatch.setattr(law, "_measure_all", measure_all)
    options = ["--tables", "0", "3", "--out", str(tmp_path / "law.csv")]
    law.main(options)
    law.main(options)
    law.main(options)
    first, second, third = asked
    assert sorted(first) == [0, 0, 1, 1, 2]
    assert sorted(second) == sorted(first[2:])
    assert third == first[4:]
    assert "not done: none" in capsys.readouterr().out


def test_a_fit_that_is_late_ends_the_run() -> None:
    assert list(law._measure_all(law.list_jobs(list_cases()), 1, 0.0)) == []
