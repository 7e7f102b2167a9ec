"""A result file survives a crash at any byte, and a job is done exactly when its result
is there.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from cavity.errors import BadFile
from experiments.jobs import COLUMNS, CURVE_COLUMNS, Job, ResultFile, Row, key_of

JOB = Job("score", "wine", 0, "ep", "10%", options={"max_epochs": 250})


def row(job: Job, **values: float) -> Row:
    blank = {
        "dataset": job.dataset,
        "split": job.split,
        "method": job.method,
        "inducing": job.inducing,
    }
    return blank | {"flip": job.flip, "settings": job.settings, "nll": 0.1} | values


def test_what_is_added_is_read_back(tmp_path: Path) -> None:
    file = ResultFile(tmp_path / "rows.csv")
    file.append([row(JOB, nll=0.123456789, error=0.0)])
    (found,) = file.read()
    assert (
        found["nll"] == 0.123456789
        and found["error"] == 0.0
        and found["ece"] != found["ece"]
    )
    assert key_of(found) == JOB.key and file.finished() == {JOB.key}


def test_a_file_cut_at_any_byte_loses_only_what_was_cut(tmp_path: Path) -> None:
    file, second = ResultFile(tmp_path / "rows.csv"), replace(JOB, split=1)
    file.append([row(JOB)])
    whole = file.path.stat().st_size
    file.append([row(second)])
    content = file.path.read_bytes()
    for end in range(whole, len(content)):
        file.path.write_bytes(content[:end])
        file.repair()
        assert file.finished() == {JOB.key}
        file.append([row(second)])
        assert file.finished() == {JOB.key, second.key}


def test_a_broken_head_is_begun_again_and_unknown_columns_are_refused(tmp_path) -> None:
    file = ResultFile(tmp_path / "rows.csv")
    file.path.write_text("dataset,spl")
    file.repair()
    file.append([row(JOB)])
    assert file.finished() == {JOB.key}
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    with pytest.raises(BadFile, match="unknown columns"):
        ResultFile(tmp_path / "rows.csv", COLUMNS).read()


def test_a_curve_without_its_end_is_not_finished_and_is_dropped(tmp_path: Path) -> None:
    file = ResultFile(tmp_path / "rows.csv", CURVE_COLUMNS)
    file.append([row(JOB, moment=1, last=0), row(JOB, moment=2, last=0)])
    assert not file.finished()
    file.repair()
    assert file.read() == []
    file.append([row(JOB, moment=1, last=0), row(JOB, moment=2, last=1)])
    file.repair()
    assert len(file.read()) == 2 and file.finished() == {JOB.key}


def test_the_fingerprint_is_of_the_settings_and_not_of_the_split() -> None:
    assert replace(JOB, split=7).settings == JOB.settings
    changed = [
        replace(JOB, options={"max_epochs": 5}),
        replace(JOB, method="sep"),
        replace(JOB, inducing="5%"),
        replace(JOB, dataset="glass"),
        replace(JOB, flip=0.1),
        replace(JOB, kind="curve"),
    ]
    assert len({job.settings for job in [JOB, *changed]}) == len(changed) + 1
