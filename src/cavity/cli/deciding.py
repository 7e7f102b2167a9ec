"""`cavity decide`: the action of least expected cost for each row of a file."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from cavity.cli.costs import read_costs
from cavity.cli.models import Extras, Predictor
from cavity.cli.predicting import answer_rows, check_file_out
from cavity.cli.terminal import Terminal, Text
from cavity.prediction.decisions import REFUSE, choose
from cavity.saving.model_file import read_result
from cavity.tables.files.table_files import open_table


def decide(
    model: str,
    data: str,
    costs: str,
    out: Text,
    keep: list[str] | None,
    device: Text,
    terminal: Terminal,
) -> None:
    check_file_out(out, model, data, terminal)
    predictor = Predictor(read_result(model, device))
    given = read_costs(costs, predictor)
    matrix = given.matrix(predictor.labels)
    actions = np.array([*predictor.labels, REFUSE])
    counts = Counter[str]()
    total = 0.0

    def answer(X: Any) -> dict[str, Any]:
        nonlocal total
        found = choose(predictor.predict(X, Extras())["probabilities"], matrix)
        action = actions[found.action]
        counts.update(action.tolist())
        total += float(found.cost.sum())
        return {"action": action, "cost": found.cost, "margin": found.margin}

    answer_rows(predictor, open_table(data), keep or [], out, terminal, answer=answer)
    if out is not None:
        said = ", ".join(f"{n} {name}" for name, n in counts.most_common())
        terminal.say(f"{said}; expected cost {total / counts.total():.4g} per row")
