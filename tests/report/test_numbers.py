"""Numbers in README and guides are constants of the code, or those of the rows behind
the results.
"""

import csv
from pathlib import Path

import pytest

from cavity.cli import explaining, fitting
from cavity.cli.serving import application, probe, requests
from cavity.cli.serving.server_settings import CONNECTIONS, HEADER_BYTES, Limits
from cavity.common import onnx_graph, tensor_files
from cavity.engine import assembly
from cavity.engine.likelihoods.quadrature import softmax_integrals as softmax
from cavity.engine.training import loop
from cavity.explain import sampling
from cavity.fitting import verdict
from cavity.fitting.options import method, regression_methods
from cavity.fitting.options.policy import bids
from cavity.fitting.options.policy.judging import (
    FOLD_ROWS,
    FOLDS,
    HELD_MOST,
    LARGE_ROWS,
    LEAST_SHARE,
    SMALL_ROWS,
)
from cavity.fitting.options.policy.training import BATCH_BYTES, MOST_SITES
from cavity.fitting.options.policy.work import POINTS_PER_ROOT, SMALL_WORK, USUAL_POINTS
from cavity.prediction import novelty
from cavity.report.scores import FEW_ROWS
from cavity.tables import arrow_tables
from cavity.tables.columns import column_summary, inspection, outliers, text_columns
from cavity.tables.files import text_files

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
folds = FOLD_ROWS
limits = Limits()
least, most = FOLDS["balanced"]

QUOTED = {
    "SECURITY.md": [
        f"more than {tensor_files._HEADER_BYTES // MIB} MB of JSON, "
        f"{tensor_files._MOST_VALUES:,} JSON values or "
        f"{tensor_files._MOST_TENSORS:,} tensors",
        f"reads format {tensor_files.FORMAT} only",
        f"more than {inspection.MOST_COLUMNS:,} columns or classes",
        f"a row of more than {text_files.BLOCK_BYTES // MIB} MB",
    ],
    "docs/cli.md": [
        f"classes with fewer than {FEW_ROWS} rows",
        f"the cells of {explaining.BACKGROUND} other rows",
        f'exact up to {regression_methods.EXACT_ROWS:,} rows, `"vi"` up to '
        f"{regression_methods.FULL_BATCH_ROWS:,}",
        f"take up to {fitting.IN_MEMORY // MIB} MB, they stay in memory",
    ],
    "docs/default.md": [
        f"boosting above {LARGE_ROWS:,} rows",
        f"at most {POINTS_PER_ROOT:g} √N, or {USUAL_POINTS})",
        f'all folds up to {folds["balanced"]:,} rows (`"fast"`: {folds["fast"]}). ',
        f"a fifth of the rows is held out, at most {HELD_MOST:,}.",
        f"below a weight of {verdict.LEAST_WEIGHT}",
        f"more than {bids.BID_SECONDS:g} CPU seconds",
        f'| up to {folds["balanced"]:,} rows (`"fast"`: {folds["fast"]}) | {least} '
        f"folds that learn again "
        f'({most} up to {SMALL_ROWS // most} rows; `"fast"`: {FOLDS["fast"][1]}) |',
        f"| up to {least * folds['balanced'] / LEAST_SHARE:,.0f} rows "
        f'(`"fast"`: {least * folds["fast"] / LEAST_SHARE:.0f}) |',
    ],
    "docs/deploy.md": [
        f"opset {onnx_graph.OPSET} ({onnx_graph.TEXT_OPSET} with columns of codes, "
        f"names or free text), "
        f"IR version {onnx_graph.IR_VERSION}, and `{onnx_graph.ML_DOMAIN}` "
        f"{onnx_graph.ML_OPSET} ",
        f"latent standard deviations below {softmax.WIDE:g} ",
        f"| `--most-rows` | {limits.rows:,} |",
        f"| `--most-bytes` | {limits.bytes // MIB} MiB |",
        f"up to {application.MOST_DROPPED // MIB} MiB that still arrive",
        f"arrives in pieces | | {HEADER_BYTES >> 10} KiB |",
        f"| `--most-waiting` | {limits.waiting:,} |",
        f"| {limits.held_bytes // limits.bytes} × `--most-bytes` | "
        f"{limits.held_bytes // MIB} MiB |",
        f"| connections at a time | | {CONNECTIONS} |",
        f"| `--read-seconds` | {limits.read_seconds:g} s |",
        f"with up to {requests.MOST_ERRORS} errors",
        f"hangs for {probe.SILENCE:g} seconds",
    ],
    "docs/labels.md": [
        f"starts at {method.LEARNT_EPSILON:g} ",
        f"from {method.DEFAULT_EPSILON:g} the kernels",
    ],
    "docs/api.md": [f"sites take more than {2 * 8 * MOST_SITES >> 30} GB"],
    "docs/scale.md": [
        f"above {arrow_tables.DENSE_BYTES // MIB} MiB as a dense table",
        f"at least ten, with at most {HELD_MOST:,} of their rows",
        f"exceeds {BATCH_BYTES // MIB} MB",
        f"up to {SMALL_WORK / 1e7:g}·10⁷",
        f"2 to {loop.FINAL_SWEEPS + 1} times to settle",
    ],
    "docs/faq.md": [f"with standard deviation {assembly.PRIOR_SD:g} around"],
    "docs/tables.md": [
        f"more than {outliers.FAR:,.0f} times as far",
        f"at most {arrow_tables.DENSE_BYTES // MIB} MiB as a dense table",
        f"more than {arrow_tables.MAX_COLUMNS:,} columns",
        f"more than {column_summary.FEW_LEVELS} texts becomes {text_columns.WIDTHS[0]} to "
        f"{text_columns.WIDTHS[1]} ",
    ],
    "docs/uncertainty.md": [
        f"R-hat is below {sampling.MOST_R_HAT} ",
        f"| {novelty.INSIDE} | as unusual as the most unusual",
    ],
}


@pytest.mark.parametrize("page", QUOTED)
def test_limits_in_a_guide_are_those_of_the_code(page: str) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert [quoted for quoted in QUOTED[page] if quoted not in text] == []


def test_the_tables_that_pages_count_are_those_of_the_rows() -> None:
    with (ROOT / "benchmarks/results/raw_tables.csv").open(encoding="utf-8") as file:
        raw = {
            r["table"]: r
            for r in csv.DictReader(file)
            if r["collection"] != "numeric" and r["method"] == "default"
        }
    rows = [
        int(row["rows"]) + int(row["tested"])
        for row in raw.values()
        if row["use"] == "report"
    ]
    for page, quoted in {
        "README.md": f"On {len(rows)} raw tables of {min(rows)} to {max(rows):,} rows",
        "docs/tables.md": f"has {len(raw)} tables as they are",
    }.items():
        text = (ROOT / page).read_text(encoding="utf-8")
        assert quoted in " ".join(text.split())


def test_the_evidence_of_the_readme_is_that_of_the_comparison() -> None:
    page = (ROOT / "docs/results/comparison.md").read_text(encoding="utf-8")
    part = page.split("### Tables that decided nothing: raw\n")[1]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    ours = dict(zip(rows[0], rows[1], strict=True))
    assert ours["method"] == "cavity, default"
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    for quoted in (
        f"has {ours['NLL / HistGradientBoosting']} of the log loss",
        f"is better on {ours['better than boosting']},",
        f"takes {ours['seconds / HistGradientBoosting']} times its seconds",
    ):
        assert quoted in readme
