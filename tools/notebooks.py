"""Execute the scripts of examples/notebooks and write them as notebooks beside them.

    python tools/notebooks.py [NAME ...]

A script has cells in percent format: `# %%` begins code, `# %% [markdown]` comments that
are text. A notebook holds what each cell prints, the value of its last expression and
its figures. It needs no Jupyter. Exit code 1 if a cell raises.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import re
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "notebooks"
MARK = re.compile(r"^# %%(.*)\n", re.MULTILINE)


class Cell(NamedTuple):
    """A cell of a script: "code" or "markdown"."""

    kind: str
    source: str


def read_cells(text: str) -> list[Cell]:
    """Return the cells of a script in percent format."""
    _, *parts = MARK.split(text)
    cells = []
    for title, body in zip(parts[::2], parts[1::2], strict=True):
        if "[markdown]" in title:
            lines = [line.removeprefix("#") for line in body.strip().splitlines()]
            cells.append(
                Cell("markdown", "\n".join(x.removeprefix(" ") for x in lines))
            )
        else:
            cells.append(Cell("code", body.strip()))
    return cells


def execute(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Run a cell and return its outputs: text, a value, figures."""
    tree = ast.parse(source)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    outputs: list[dict[str, Any]] = []
    value = None
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, f"cell {number}", "exec"), names)
        if last is not None:
            value = eval(compile(last, f"cell {number}", "eval"), names)
    if printed.getvalue():
        text = to_lines(printed.getvalue())
        outputs.append({"output_type": "stream", "name": "stdout", "text": text})
    figures = take_figures()
    if value is not None and not figures:
        outputs.append(
            {
                "output_type": "execute_result",
                "execution_count": number,
                "data": {"text/plain": to_lines(repr(value))},
                "metadata": {},
            }
        )
    for picture in figures:
        data = {"image/png": picture}
        outputs.append({"output_type": "display_data", "data": data, "metadata": {}})
    return outputs


def take_figures() -> list[str]:
    """Return the open figures of matplotlib as PNG in base64, and close them."""
    plt = sys.modules.get("matplotlib.pyplot")
    if plt is None:
        return []
    pictures = []
    for number in plt.get_fignums():
        file = io.BytesIO()
        plt.figure(number).savefig(file, dpi=70, metadata={"Software": None})
        pictures.append(base64.b64encode(file.getvalue()).decode())
    plt.close("all")
    return pictures


def to_lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def make_notebook(script: Path) -> dict[str, Any]:
    """Execute a script and return its notebook, in nbformat 4.5."""
    names = {"__name__": script.stem}
    cells = []
    number = 0
    for i, (kind, source) in enumerate(read_cells(script.read_text(encoding="utf-8"))):
        cell = {"id": f"cell-{i}", "cell_type": kind, "metadata": {}}
        cell["source"] = to_lines(source)
        if kind == "code":
            number += 1
            cell["execution_count"] = number
            cell["outputs"] = execute(source, names, number)
        cells.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def main() -> None:
    import matplotlib

    matplotlib.use("agg")
    for script in sorted(FOLDER.glob("*.py")):
        if sys.argv[1:] and script.stem not in sys.argv[1:]:
            continue
        begun = time.process_time()
        notebook = make_notebook(script)
        text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
        script.with_suffix(".ipynb").write_text(text, encoding="utf-8")
        print(f"{script.stem}: {time.process_time() - begun:.0f} CPU s")


if __name__ == "__main__":
    main()
