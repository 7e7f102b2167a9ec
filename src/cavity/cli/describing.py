"""`cavity info`: describe a model file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cavity.cli.predicting import Model, format_label
from cavity.cli.terminal import Terminal, format_evidence, format_table, known_evidence
from cavity.modelfile import describe_rows_inside

MAX_FEATURES = 5  # most relevant features to print


def describe_model(path: Path) -> dict[str, Any]:
    """Describe a model as a dict that JSON can store."""
    model = Model.open(path, regressor=True)
    clf, prepare = model.classifier, model.prepare
    names = getattr(clf, "feature_names_in_", [f"column {j}" for j in range(clf.n_features_in_)])
    relevance = (
        None
        if clf.feature_relevance_ is None
        else dict(zip(names, clf.feature_relevance_.tolist(), strict=True))
    )
    return {
        "model": str(path),
        "bytes": path.stat().st_size,
        "method": str(clf.method),
        "kernel": repr(clf.kernel_),
        "classes": [format_label(c) for c in getattr(clf, "classes_", ())],
        "inducing_points": int(clf.inducing_points_.shape[-2]),
        "features": clf._fitted.prior.size if hasattr(clf, "frequencies_") else None,
        "noise": clf.noise_.tolist() if hasattr(clf, "classes_") else clf.noise_,
        "rows_inside": describe_rows_inside(clf._fitted, clf._result.rows),
        "n_features": int(clf.n_features_in_),
        "dtype": str(clf.dtype),
        "epochs": clf.n_epochs_,
        "log_marginal_likelihood": known_evidence(clf),
        "target": model.target,
        "columns": None if prepare is None else dict(prepare.describe()),
        "relevance": relevance,
        "training": getattr(clf, "notes_", {}),
    }


def print_info(path: Path, terminal: Terminal) -> None:
    """Print the description of a model."""
    found = describe_model(path)
    terminal.print_result(found)
    classes = found["classes"]
    spectral = found["features"] is not None
    points = f"{found['features']} features" if spectral else f"{found['inducing_points']} inducing points"
    few = ", ".join(classes[:8]) + (", ..." if len(classes) > 8 else "")
    rows = [
        ("model", f"{found['model']} ({max(1, round(found['bytes'] / 1000))} kB)"),
        (
            "method",
            f"{found['method']}, {points}{' per class' if classes else ''}, {found['dtype']}",
        ),
        ("kernel", found["kernel"]),
        ("classes", f"{len(classes)}: {few}") if classes else ("noise", f"variance {found['noise']:.4g}"),
        (
            "epochs",
            f"{found['epochs']}, log marginal likelihood {format_evidence(found['log_marginal_likelihood'])}",
        ),
    ]
    if found["rows_inside"] != "none":
        rows.append(("stored rows", found["rows_inside"]))
    trained = found["training"]
    if "data" in trained:
        rows.append(
            (
                "trained on",
                f"{trained['data']}, {trained['rows']} rows, seed {trained['seed']}, cavity {trained['cavity']}",
            )
        )
    if found["target"] is not None:
        lost = (
            f" ({trained['unlabelled']} rows without a label were not used)"
            if trained.get("unlabelled")
            else ""
        )
        rows.append(("target", found["target"] + lost))
    terminal.say(format_table(rows, indent=0))
    if found["columns"] is not None:
        terminal.say("columns")
        terminal.say(format_table([(name or "(no name)", what) for name, what in found["columns"].items()]))
    if found["relevance"] is not None:
        order = sorted(found["relevance"].items(), key=lambda item: -item[1])[:MAX_FEATURES]
        terminal.say("most relevant features")
        terminal.say(
            format_table([(name or "(no name)", f"{share:.2f}") for name, share in order if share > 0])
        )
