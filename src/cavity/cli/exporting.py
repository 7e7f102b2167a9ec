"""`cavity export`: a saved model as an ONNX graph."""

from __future__ import annotations

from pathlib import PurePath

from cavity.cli.models import Model
from cavity.cli.outputs import check_out
from cavity.cli.terminal import Terminal
from cavity.common.text_tables import list_names
from cavity.errors import BadOption
from cavity.tables.columns.column_kinds import Date


def export(
    model: str, onnx: str | None, dtype: str, novelty: bool, terminal: Terminal
) -> None:
    if onnx is None:
        raise BadOption("--onnx is missing: name the file to write, --onnx FILE.")

    check_out(onnx, model, flag="--onnx", example="model.onnx")
    if PurePath(onnx).suffix.lower() != ".onnx":
        raise BadOption(f"--onnx {onnx}: the name must end in .onnx.")

    from cavity.export import onnx as write_onnx

    opened = Model.open(model)
    fitted = opened.classifier
    write_onnx(fitted, onnx, dtype=dtype, novelty=novelty)
    outputs = "mean and std"
    if hasattr(fitted, "classes_"):
        outputs = "label and probabilities"
    if novelty:
        outputs += " and novelty"

    columns = None
    inputs = f"input X (n, {opened.features.n})"
    prepare = getattr(fitted, "preparation_", None)
    if prepare is not None:
        columns = list(prepare.inputs)
        inputs = f"inputs {list_names(list(map(repr, columns)))}, each (n, 1)"
        if any(isinstance(column, Date) for column in prepare.columns_):
            terminal.note("the graph takes dates as numbers of days since 1970-01-01")

    terminal.say(f"Wrote {onnx}: {inputs}, outputs {outputs}")
    terminal.print_result({"out": onnx, "columns": columns})
