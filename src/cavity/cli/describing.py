"""`cavity info`: describe a model file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cavity.cli.terminal import Terminal
from cavity.common import tensor_files
from cavity.common.text_tables import format_pairs, name_column
from cavity.errors import BadFile, name_in_errors
from cavity.saving.schema import KINDS, read_summary
from cavity.saving.summary import list_facts

MAX_FEATURES = 5  # most important columns to print


def describe_model(path: str | Path) -> dict[str, Any]:
    meta = tensor_files.read_arrays(path, *KINDS).meta
    with name_in_errors(path, BadFile):
        found = read_summary(meta)
    about = {"model": str(path), "bytes": Path(path).stat().st_size}
    return about | found | {"training": meta.get("notes") or {}}


def info(model: str, terminal: Terminal) -> None:
    found = describe_model(model)
    terminal.print_result(found)
    terminal.say(format_pairs(_list_lines(found), indent=0))
    if found["columns"] is not None:
        terminal.say("columns")
        columns = found["columns"].items()
        terminal.say(format_pairs([(name_column(name), how) for name, how in columns]))

    ranked = found.get("importance")
    unit = "change of predictions in nats"
    if not ranked:
        ranked = found["relevance"]
        unit = "share by lengthscale"
    if ranked is not None:
        terminal.say(f"most important columns ({unit})")
        order = sorted(ranked, key=lambda name: -ranked[name])[:MAX_FEATURES]
        named = [
            (name_column(name), f"{ranked[name]:.2f}")
            for name in order
            if ranked[name] > 0
        ]
        terminal.say(format_pairs(named))


def _list_lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    size = max(1, round(found["bytes"] / 1000))
    lines = [("model", f"{found['model']} ({size} kB)"), *list_facts(found)]
    trained = found["training"]
    if "data" in trained:
        origin = f"seed {trained['seed']}, cavity {trained['cavity']}"
        text = f"{trained['data']}, {trained['rows']} rows, {origin}"
        lines.append(("trained on", text))

    if found["target"] is not None:
        target = found["target"]
        unlabelled = trained.get("unlabelled")
        if unlabelled:
            target += f" ({unlabelled} rows without a label were not used)"
        lines.append(("target", target))

    return lines
