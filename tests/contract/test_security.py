"""Promises of SECURITY.md that concern the package as a whole."""

import inspect
import re

import numpy as np
import pandas as pd
import pytest

import audited
from cavity.cli import app
from chaos.children import call
from support import ROOT


def test_nothing_from_a_file_to_a_report_opens_a_connection_or_runs_a_program(tmp_path):
    assert call(audited.go_the_whole_way, tmp_path) == []


@pytest.fixture
def pickles(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2.0] * 10, "kind": ["x", "y"] * 10})
    frame.to_pickle(tmp_path / "rows.pkl")
    np.save(tmp_path / "rows.npy", frame.to_numpy(), allow_pickle=True)
    np.savez(tmp_path / "rows.npz", frame.to_numpy())
    return [tmp_path / f"rows.{kind}" for kind in ("pkl", "npy", "npz")]


def test_pickles_and_numpy_files_are_no_tables_and_are_not_opened_as_pickles(pickles):
    assert call(audited.read_pickles, pickles) == []
    assert "pickle.find_class" in call(audited.open_pickle, pickles[1])


SERVE = {
    name: parameter.default
    for name, parameter in inspect.signature(app.serve).parameters.items()
}


def test_the_server_listens_on_this_machine_unless_it_is_told():
    assert SERVE["host"] == "127.0.0.1"


def test_the_page_has_the_limits_of_the_server():
    text = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\|[^|]*\| `--([\w-]+)` \| ([\d,]+)( MiB)?", text, re.M)
    assert len(rows) == 4
    for option, number, mebi in rows:
        value = int(number.replace(",", "")) * (2**20 if mebi else 1)
        assert SERVE[option.replace("-", "_")] == value, option
