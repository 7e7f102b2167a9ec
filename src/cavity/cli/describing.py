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
        terminal.say(
            format_pairs(
                [(name_column(name), what) for name, what in found["columns"].items()]
            )
        )
    ranked = found.get("importance") or found["relevance"]
    if ranked is not None:
        order = sorted(ranked.items(), key=lambda item: -item[1])[:MAX_FEATURES]
        unit = (
            "change of predictions in nats"
            if found.get("importance")
            else "share by lengthscale"
        )
        terminal.say(f"most important columns ({unit})")
        named = [
            (name_column(name), f"{value:.2f}") for name, value in order if value > 0
        ]
        terminal.say(format_pairs(named))


def _list_lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [
        ("model", f"{found['model']} ({max(1, round(found['bytes'] / 1000))} kB)"),
        *list_facts(found),
    ]
    trained = found["training"]
    if "data" in trained:
        with_seed = f"seed {trained['seed']}, cavity {trained['cavity']}"
        lines.append(
            ("trained on", f"{trained['data']}, {trained['rows']} rows, {with_seed}")
        )
    if found["target"] is not None:
        lost = trained.get("unlabelled")
        unused = f" ({lost} rows without a label were not used)" if lost else ""
        lines.append(("target", found["target"] + unused))
    return lines
