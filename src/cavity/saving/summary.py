"""The summary of a model for `cavity info` and the report.

It is stored in the model's file and read without torch and without tensors.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cavity.common.terms import TERMS
from cavity.common.text_tables import format_label, list_names
from cavity.prediction.estimate import format_loss
from cavity.prediction.member_scores import MemberScores
from cavity.prediction.result import Result
from cavity.prediction.targets import target_noise

NO_ESTIMATE = "none in this file: cavity evaluate scores other rows"


def summarise(arguments: dict[str, Any], result: Result) -> dict[str, Any]:
    """Return facts about a fitted estimator as JSON."""
    model = result.model
    features = result.features
    pool = model.pool
    members = result.members
    classes = () if result.classes is None else result.classes
    names = features.encoder.feature_names_in_.tolist()

    def by_name(values: Any) -> dict[str, float] | None:
        if values is None:
            return None

        return dict(zip(names, np.asarray(values).tolist(), strict=True))

    evidence = None if math.isnan(result.evidence) else float(result.evidence)
    columns = None
    if features.names is not None:
        columns = dict(features.encoder.describe())
    return {
        "method": str(arguments["method"]),
        "kernel": repr(model.prior.kernel),
        "classes": [format_label(label) for label in classes],
        "inducing_points": int(model.Z.shape[-2]),
        "noise": _list_noise(result),
        "rows_inside": describe_rows_inside(arguments, result),
        "n_features": len(names),
        "dtype": str(arguments["dtype"]).removeprefix("torch."),
        "epochs": len(result.history),
        "log_marginal_likelihood": evidence,
        "evidence": result.evidence_name,
        "temperature": None if pool.members else 1 / pool.weight,
        "calibration": result.calibration,
        "has_estimate": result.estimate is not None,
        "plan": None if result.plan is None else result.plan.summarise(),
        "ensemble_weights": [pool.weight, *pool.weights],
        "pool": pool.named_weights,
        "members": None if members is None else members._asdict(),
        "target": features.target,
        "columns": columns,
        "relevance": by_name(result.relevance),
        "importance": by_name(result.importance),
    }


def _list_noise(result: Result) -> Any:
    """Return the latent noise per class, or the noise variance of the targets in the
    user's units.
    """
    if result.classes is None:
        return target_noise(result.model) * result.units[1] ** 2

    return result.model.noises.tolist()


def describe_rows_inside(arguments: dict[str, Any], result: Result) -> str:
    """Say which training rows a file of this model holds."""
    if result.rows is not None:
        return "every training row, with its target"

    chosen = [arguments.get(name) for name in ("method", "inducing")]
    if all(isinstance(value, str) and value == "auto" for value in chosen):
        return "none"
    if result.model.spectral:
        return "none"
    if result.model.prior.learn_inducing:
        return (
            "none, but inducing points that began at training rows, unless you gave "
            "them, and may still be near them"
        )

    return (
        "the inducing points, which were not learnt: training rows, unless you gave "
        "them"
    )


def format_evidence(evidence: float | None) -> str:
    if evidence is None or math.isnan(evidence):
        return "not available"

    return f"{evidence:.2f}"


def list_members(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a line per member of a pool, or its weights if that is all that is known."""
    scores = found.get("members")
    if scores is None:
        # older files have no scores, and some no names
        named = found.get("pool") or dict(enumerate(found["ensemble_weights"], 1))
        parts = [f"{member} {weight:.2f}" for member, weight in named.items()]
        return [("pool", ", ".join(parts))]

    rows = zip(*(scores[name] for name in MemberScores._fields), strict=True)
    lines = []
    for name, weight, loss, gain, seconds in rows:
        text = (
            f"weight {weight:.2f}, log loss alone {format_loss(loss)}, "
            f"without it {gain:+.4f}, {seconds:.1f} s"
        )
        lines.append((f"pool: {name}", text))
    return lines


def list_facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the summary as pairs of a name and a text."""
    classes = found["classes"]
    points = f"{found['inducing_points']} inducing points"
    if classes:
        points += " per class"
        outputs = ("classes", f"{len(classes)}: {list_names(classes)}")
    else:
        outputs = ("noise", f"variance {found['noise']:.4g}")

    name = found.get("evidence") or "log Z_q"
    evidence = format_evidence(found["log_marginal_likelihood"])
    if name in TERMS:
        evidence += f" ({TERMS[name].meaning})"
    facts = [
        ("method", f"{found['method']}, {points}, {found['dtype']}"),
        ("kernel", found["kernel"]),
        outputs,
        ("epochs", f"{found['epochs']}"),
        (name, evidence),
    ]
    pooled = len(found["ensemble_weights"]) > 1
    if found["calibration"] not in (None, "none"):
        if pooled:
            facts.append(("judged by", found["calibration"]))
        else:
            temperature = f"{found['temperature']:.3g}, from {found['calibration']}"
            facts.append(("temperature", temperature))
    if pooled:
        facts += list_members(found)
    if found.get("has_estimate") is False:
        facts.append(("estimate", NO_ESTIMATE))

    if found.get("plan"):
        facts.append(("plan", found["plan"]))
    if found["rows_inside"] != "none":
        facts.append(("stored rows", found["rows_inside"]))
    return facts
