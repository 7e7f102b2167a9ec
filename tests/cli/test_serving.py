"""cavity report, export, serve and the columns of uncertainty: through the commands,
good input and bad.
"""

import json
import re

import numpy as np

from cli.running import run


def test_predict_adds_what_it_does_not_know(birds):
    done = run(
        "predict",
        birds / "birds.cavity",
        birds / "penguins.csv",
        "--out",
        birds / "p.csv",
        "--uncertainty",
    )
    assert done.exit_code == 0, done.output
    found = np.genfromtxt(
        birds / "p.csv", delimiter=",", names=True, dtype=None, encoding=None
    )
    total, parts = found["total"], found["aleatoric"] + found["epistemic"]
    np.testing.assert_allclose(total, parts, atol=0.02)
    assert (found["epistemic"] >= 0).all()


def test_report_of_a_model_and_of_rows(birds):
    alone = run("report", birds / "birds.cavity", "--out", birds / "alone.html")
    assert alone.exit_code == 0, alone.output
    assert "About the model" in (birds / "alone.html").read_text()
    done = run(
        "report",
        birds / "birds.cavity",
        birds / "penguins.csv",
        "--out",
        birds / "rows.html",
        "--rows",
        50,
        "--json",
    )
    assert done.exit_code == 0, done.output
    said = json.loads(re.search(r"^\{.*\}$", done.output, re.MULTILINE).group())
    assert said["shown"] == 50 < said["rows"]
    assert "Confusion matrix" in (birds / "rows.html").read_text()
