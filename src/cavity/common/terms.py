"""Terms of commands, report and documentation: name, unit and one sentence each."""

from __future__ import annotations

from typing import NamedTuple


class Term(NamedTuple):
    name: str
    unit: str  # empty for a share or a number without one
    meaning: str


TERMS = {  # by the key of a score in JSON, or by its own name
    "accuracy": Term(
        "accuracy",
        "",
        "Share of rows whose class is predicted.",
    ),
    "error": Term(
        "error",
        "",
        "Share of rows whose class is not predicted: 1 − accuracy.",
    ),
    "nll": Term(
        "log loss",
        "nats per row",
        "Mean negative log-probability of the true class; a sure and wrong row costs "
        "most.",
    ),
    "brier": Term(
        "Brier score",
        "",
        "Mean squared distance of the probabilities from the truth, summed over "
        "classes.",
    ),
    "ece": Term(
        "calibration error",
        "",
        "By how much probabilities of the predicted class are off, on average (ECE).",
    ),
    "auc": Term(
        "AUC",
        "",
        "Probability that a row of a class is given more of it than a row of another "
        "class; 0.5 is guessing.",
    ),
    "f1": Term(
        "F1",
        "",
        "Harmonic mean of precision and recall; overall, the mean over classes.",
    ),
    "precision": Term(
        "precision",
        "",
        "Share of the rows predicted as a class that are of it.",
    ),
    "recall": Term(
        "recall",
        "",
        "Share of the rows of a class that are predicted as it.",
    ),
    "rmse": Term(
        "root mean squared error",
        "of the target",
        "How far predictions are off; large errors count most.",
    ),
    "mae": Term(
        "mean absolute error",
        "of the target",
        "How far predictions are off, on average.",
    ),
    "r2": Term(
        "variance explained (R²)",
        "",
        "Share of the target's variance that predictions explain; 0 is the mean.",
    ),
    "nlpd": Term(
        "negative log density",
        "nats per row",
        "Log loss of a number: small where intervals are narrow and right.",
    ),
    "coverage": Term(
        "coverage",
        "",
        "Share of rows within their 95% interval; it should be 95%.",
    ),
    "±": Term(
        "±",
        "of the number before it",
        "One standard error: another sample of rows moves the number by about so much.",
    ),
    "importance": Term(
        "importance",
        "nats",
        "By how much the log loss grows if the cells of a column are shuffled, or "
        "unknown.",
    ),
    "contribution": Term(
        "contribution",
        "log-odds",
        "By how much a cell raises the log-odds of the class: +0.69 means twice the "
        "odds that a typical cell of the column gives.",
    ),
    "novelty": Term(
        "novelty",
        "",
        "Share of training rows that are more usual; above 0.95, a row is unlike them.",
    ),
    "total": Term(
        "total",
        "nats",
        "Entropy of the predicted probabilities: how hard the class is to guess.",
    ),
    "aleatoric": Term(
        "aleatoric",
        "nats",
        "Part of total where classes overlap: more rows would not remove it.",
    ),
    "epistemic": Term(
        "epistemic",
        "nats",
        "Part of total where rows are few: more of them would remove it.",
    ),
    "temperature": Term(
        "temperature",
        "",
        "Above 1, the model was too sure: its probabilities were made more equal.",
    ),
    "pool": Term(
        "pool",
        "",
        "Classifiers whose probabilities are multiplied, each to the power of its "
        "weight.",
    ),
    "log marginal likelihood": Term(
        "log marginal likelihood",
        "nats",
        "Log probability of the training labels; also compares methods and kernels.",
    ),
    "lower bound on the log marginal likelihood": Term(
        "lower bound on the log marginal likelihood",
        "nats",
        "At most the log probability of the training labels.",
    ),
    "log Z_q": Term(
        "log Z_q",
        "nats",
        "What training maximises; compares fits of one method to the same rows, "
        "nothing else.",
    ),
}


def name_score(key: str) -> str:
    return TERMS[key].name


def describe(key: str) -> str:
    """Return the name of a term and its unit as a title: 'Log loss, nats per row'."""
    name, unit, _ = TERMS[key]
    title = name[0].upper() + name[1:]
    if unit and unit != "of the target":
        return f"{title}, {unit}"

    return title
