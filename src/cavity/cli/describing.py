"""`cavity info`: describe a model file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cavity.cli.terminal import Terminal, format_evidence
from cavity.common import tensor_files
from cavity.common.object_stores import as_path, count_bytes
from cavity.common.terms import TERMS
from cavity.common.text_tables import format_pairs, list_names, name_column
from cavity.errors import BadFile
from cavity.saving.schema import KINDS, read_summary

MAX_FEATURES = 5  # most important columns to print


def describe_model(path: str | Path) -> dict[str, Any]:
    meta = tensor_files.read_facts(path, *KINDS)
    try:
        found = read_summary(meta)
    except BadFile as error:
        raise error if str(path) in str(error) else BadFile(f"{path}: {error}") from error
    about = {"model": str(path), "bytes": count_bytes(as_path(path))}
    return about | found | {"training": meta.get("notes") or {}}


def info(model: str, terminal: Terminal) -> None:
    found = describe_model(model)
    terminal.print_result(found)
    terminal.say(format_pairs(_list_facts(found), indent=0))
    if found["columns"] is not None:
        terminal.say("columns")
        terminal.say(format_pairs([(name_column(name), what) for name, what in found["columns"].items()]))
    ranked = found.get("importance") or found["relevance"]
    if ranked is not None:
        order = sorted(ranked.items(), key=lambda item: -item[1])[:MAX_FEATURES]
        unit = "change of predictions in nats" if found.get("importance") else "share by lengthscale"
        terminal.say(f"most important columns ({unit})")
        named = [(name_column(name), f"{value:.2f}") for name, value in order if value > 0]
        terminal.say(format_pairs(named))


def _list_facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    classes = found["classes"]
    evidence = format_evidence(found["log_marginal_likelihood"])
    points = f"{found['inducing_points']} inducing points"
    rows = [
        ("model", f"{found['model']} ({max(1, round(found['bytes'] / 1000))} kB)"),
        ("method", f"{found['method']}, {points}{' per class' if classes else ''}, {found['dtype']}"),
        ("kernel", found["kernel"]),
        ("classes", f"{len(classes)}: {list_names(classes)}")
        if classes
        else ("noise", f"variance {found['noise']:.4g}"),
        ("epochs", f"{found['epochs']}"),
        (
            name := found.get("evidence") or "log Z_q",
            f"{evidence}{f' ({TERMS[name].meaning})' if name in TERMS else ''}",
        ),
    ]
    if found["calibration"] not in (None, "none"):
        rows.append(("temperature", f"{found['temperature']:.3g}, from {found['calibration']}"))
    if len(found["ensemble_weights"]) > 1:
        # older files have no names
        named = found.get("pool") or dict(enumerate(found["ensemble_weights"], 1))
        rows.append(("pool", ", ".join(f"{name} {weight:.2f}" for name, weight in named.items())))
    if found.get("plan"):
        rows.append(("plan", found["plan"]))
    if found["rows_inside"] != "none":
        rows.append(("stored rows", found["rows_inside"]))
    trained = found["training"]
    if "data" in trained:
        with_seed = f"seed {trained['seed']}, cavity {trained['cavity']}"
        rows.append(("trained on", f"{trained['data']}, {trained['rows']} rows, {with_seed}"))
    if found["target"] is not None:
        lost = trained.get("unlabelled")
        unused = f" ({lost} rows without a label were not used)" if lost else ""
        rows.append(("target", found["target"] + unused))
    return rows
