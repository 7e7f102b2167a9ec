"""The documents show the rows, and the rules of agreement are those that they state."""

import math
import shutil
from pathlib import Path

import pytest

from cavity.errors import BadOption
from experiments import check, page, runner, tables
from experiments.jobs import Job, ResultFile
from experiments.scores import (
    Cell,
    agrees,
    best_published,
    is_close,
    mark,
    mean_cell,
    mean_cells,
    published,
)
from experiments.sets import UCI
from experiments.targets import SHARES, TABLE_METHODS, TARGETS, Selection
from experiments.workers import Finished

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
TABLE2 = RESULTS / "table2.csv"


def test_no_document_is_out_of_date_with_the_rows() -> None:
    assert page.find_stale(RESULTS) == [], "run: python -m experiments page"


@pytest.mark.slow
def test_a_row_that_changes_makes_its_pages_stale(tmp_path: Path) -> None:
    results = tmp_path / "results"
    shutil.copytree(RESULTS, results)
    for name in ("table2", "flights"):
        file = TARGETS[name].result_file(results)
        rows = [row | {"nll": row["nll"] + 0.5} for row in file.read()]
        file.path.unlink()
        file.append(rows)
    stale = {path.name for path in page.find_stale(results)}
    assert {"reproduction.md", "scale.md", "flights.png"} <= stale


def test_every_mark_in_a_document_names_a_table() -> None:
    documents = page.marked_documents()
    assert documents
    for text in documents.values():
        assert all(name in page.BLOCKS for _, name, _ in page.BLOCK.findall(text))


def test_every_published_cell_is_there() -> None:
    for score in ("nll", "error"):
        table = published(score)
        missing = [
            (s, d, m)
            for s in SHARES
            for d in UCI
            for m in TABLE_METHODS
            if (s, d, m) not in table
        ]
        assert missing in (
            [],
            [("20%", "wine", "vi")],
        )  # that cell of the ICML paper is empty
    assert published("nll")["5%", "glass", "gfitc"] == Cell(0.61, 0.05, 20)
    assert published("nll")["200", "mnist", "sep"].mean == 0.0725
    thesis = published("nll")["20%", "waveform", "ep_outer"]
    assert thesis.mean == 0.35 and thesis.se == pytest.approx(0.02 / math.sqrt(20))
    assert best_published("glass").mean == 0.58


def test_a_mean_at_the_edge_of_one_combined_error_agrees_and_beyond_two_it_does_not() -> (
    None
):
    theirs = Cell(0.30, 0.03, 20)
    at = lambda mean: Cell(mean, 0.04, 20)
    assert agrees(at(0.3549), theirs) and not agrees(at(0.3551), theirs)
    assert is_close(at(0.3999), theirs) and not is_close(at(0.4001), theirs)
    assert [mark(at(m), theirs) for m in (0.1, 0.38, 0.5)] == ["✓", "≈", "✗"]


def test_a_cell_is_a_mean_with_its_standard_error() -> None:
    assert mean_cell([1.0, 3.0]) == Cell(2.0, 1.0, 2)
    assert math.isnan(mean_cell([1.0]).se)


def test_reduced_rows_are_on_no_page() -> None:
    rows = ResultFile(RESULTS / "table2.csv").read()
    short = [row | {"settings": "0000000000", "nll": 99.0} for row in rows]
    assert tables.counts(rows + short) == tables.counts(rows)


def test_the_check_is_strict_for_the_same_versions_and_has_a_tolerance_for_others() -> (
    None
):
    old = {"nll": 0.5, "error": 0.1, "versions": "a", "device": "cpu"}
    find_disagreement = check.find_disagreement
    assert not find_disagreement(old, old | {"nll": 0.5 + 1e-7}, 0.1)
    assert "nll" in find_disagreement(old, old | {"nll": 0.501}, 0.1)
    other = old | {"versions": "b"}
    assert not find_disagreement(old, other | {"nll": 0.55}, 0.1)
    assert "nll" in find_disagreement(old, other | {"nll": 0.61}, 0.1)
    assert "nll" in find_disagreement(old, other | {"nll": math.nan}, 0.1)


def test_a_check_allows_two_standard_errors_of_the_cell_and_keeps_to_its_sets() -> None:
    options = runner.RunOptions(RESULTS)
    found = check.find_candidates(options, Selection(sets=("wine",)), 1e9)
    assert {candidate.job.dataset for candidate in found} == {"wine"}
    cells = mean_cells(TARGETS["table2"].select(ResultFile(TABLE2).read()), "nll")
    cell = [c for c in found if (c.job.method, c.job.inducing) == ("ep", "10%")]
    assert len(cell) == cells["10%", "wine", "ep"].n == 20
    for candidate in cell:
        assert candidate.tolerance == pytest.approx(2 * cells["10%", "wine", "ep"].se)
    with pytest.raises(BadOption, match="nowhere"):
        check.find_candidates(options, Selection(sets=("nowhere",)), 1e9)


def test_a_row_that_cannot_run_does_not_disagree() -> None:
    job = Job("score", "glass", 0, "ep", "10%")
    old = {"nll": 0.5, "error": 0.1, "versions": "cavity 0.1.0 code 9; torch"}
    old |= {"device": "cpu", "commit": "0a8312a"}
    candidate = check.Candidate(old, job, 0.1)

    def judged(nll: float, failure: str = "") -> tuple[int, str]:
        rows = [] if failure else [old | {"nll": nll, "versions": "b"}]
        return check.judge(candidate, Finished(job, rows, failure, 1.0))

    assert judged(0.55)[0] == 0 and "cavity 0.1.0 (0a8312a)" in judged(0.55)[1]
    assert judged(0.65)[0] == check.DISAGREES
    code, text = judged(0.5, "BadInput: glass.csv")
    assert code == check.COULD_NOT_RUN and "glass.csv" in text
