"""The summary of a model in words, for `cavity info` and the report. Does not load torch."""

from __future__ import annotations

from typing import Any

from cavity.common.terms import TERMS
from cavity.common.text_tables import list_names


def format_evidence(evidence: float | None) -> str:
    return "not available" if evidence is None else f"{evidence:.2f}"


def list_facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the summary as pairs of a name and a text, for `cavity info` and the report."""
    classes = found["classes"]
    points = f"{found['inducing_points']} inducing points{' per class' if classes else ''}"
    name = found.get("evidence") or "log Z_q"
    meaning = f" ({TERMS[name].meaning})" if name in TERMS else ""
    facts = [
        ("method", f"{found['method']}, {points}, {found['dtype']}"),
        ("kernel", found["kernel"]),
        ("classes", f"{len(classes)}: {list_names(classes)}")
        if classes
        else ("noise", f"variance {found['noise']:.4g}"),
        ("epochs", f"{found['epochs']}"),
        (name, format_evidence(found["log_marginal_likelihood"]) + meaning),
    ]
    if found["calibration"] not in (None, "none"):
        facts.append(("temperature", f"{found['temperature']:.3g}, from {found['calibration']}"))
    if len(found["ensemble_weights"]) > 1:
        # older files have no names
        named = found.get("pool") or dict(enumerate(found["ensemble_weights"], 1))
        facts.append(("pool", ", ".join(f"{name} {weight:.2f}" for name, weight in named.items())))
    if found.get("plan"):
        facts.append(("plan", found["plan"]))
    if found["rows_inside"] != "none":
        facts.append(("stored rows", found["rows_inside"]))
    return facts
