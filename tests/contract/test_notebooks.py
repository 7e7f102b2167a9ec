"""The notebooks are those of their scripts, executed from top to bottom."""

import json

import pytest

from support import load_script

notebooks = load_script("tools/notebooks.py")
SCRIPTS = sorted(notebooks.FOLDER.glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_notebook_has_the_cells_of_its_script_and_their_outputs(script):
    written = json.loads(script.with_suffix(".ipynb").read_text(encoding="utf-8"))
    assert (written["nbformat"], written["nbformat_minor"]) == (4, 5)
    cells = notebooks.read_cells(script.read_text(encoding="utf-8"))
    assert [
        notebooks.Cell(cell["cell_type"], "".join(cell["source"]))
        for cell in written["cells"]
    ] == cells
    code = [cell for cell in written["cells"] if cell["cell_type"] == "code"]
    counts = [cell["execution_count"] for cell in code]
    assert counts == list(range(1, len(code) + 1))
    assert sum(len(cell["outputs"]) for cell in code) > 4
    ids = [cell["id"] for cell in written["cells"]]
    assert len(set(ids)) == len(ids)


def test_text_values_and_figures_become_outputs():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    names = {}
    (text, value) = notebooks.execute("print('a')\nx = 6\nx * 7", names, 3)
    assert text == {"output_type": "stream", "name": "stdout", "text": ["a\n"]}
    assert value["data"] == {"text/plain": ["42"]} and value["execution_count"] == 3
    assert notebooks.execute("x = 7", names, 4) == [] and names["x"] == 7
    draw = "import matplotlib.pyplot as plt\nplt.plot([x, 1])"
    (figure,) = notebooks.execute(draw, names, 5)
    assert list(figure["data"]) == ["image/png"] and not pyplot.get_fignums()


def test_a_cell_that_raises_ends_the_tool(tmp_path):
    script = tmp_path / "broken.py"
    script.write_text("# %% [markdown]\n# # Title\n\n# %%\nassert 1 > 2\n")
    with pytest.raises(AssertionError):
        notebooks.make_notebook(script)
