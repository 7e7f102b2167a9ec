"""The schema of a model file: tensors with shape, type and range, and JSON values.

A new entry is one line. `load`, `cavity predict` and `cavity info` check files against
these tables.

Letters of shapes (`1|C` is either; any other letter stands for one number within a
group of tensors):

    C  latent functions                        D  features
    M  inducing points                         B  blocks of q, C or 1 if coupled
    K  sets of kernel parameters, 1 or C       W  values per block
    F  features that a kernel sees, D if all
    G  lengthscales, F if none are shared

T is the type of the model, float64 or float32. A "?" marks entries that may be missing
or null.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from cavity.errors import BadFile
from cavity.prediction.target_estimate import TargetEstimate
from cavity.prediction.target_spread import MOST_TERMS
from cavity.saving import ranges as r

F64 = "F64"
I64 = "I64"
T = "T"
INT = "I32|I64"
SMALL = "U8|I16|I32|I64"
FLOAT = "F64|F32"


class Tensor(NamedTuple):
    name: str
    shape: str
    dtype: str
    range: r.Range = r.FINITE


# class of the estimator by the kind that a file states
KINDS = {"model": "GPClassifier", "regressor": "GPRegressor"}


# fmt: off
MODEL = (  # name, shape, type, range
    Tensor("mean",               "B W",     T, r.BOUNDED),
    Tensor("lower",              "B W W",   T, r.PRECISION_FACTOR),
    Tensor("prior_lower",        "1|C M M", T, r.FACTOR),
    Tensor("prior.inducing",     "1|C M D", T),
    Tensor("prior.center",       "D",       T),
    Tensor("prior.spread",       "D",       T, r.POSITIVE),
    Tensor("factor.log_noise?",  "1",       T, r.LOG),  # Gaussian
    Tensor("factor.epsilon?",    "",        F64, r.SHARE),  # RobustMax
    Tensor("factor.log_odds?",   "1",       T, r.LOG),  # RobustMax, if it is learnt
    Tensor("feature_relevance?", "columns", F64, r.SHARES),
)

LEARNT_NOISE = Tensor("prior.log_noise", "1|C", T, r.LOG)
FIXED_NOISE = Tensor("prior.fixed_noise", "1|C", T, r.NOT_NEGATIVE)

SCALED = (
    Tensor("log_lengthscale", "K G", T, r.LOG),
    Tensor("log_variance",    "K",   T, r.LOG),
    Tensor("unit",            "F",   T, r.POSITIVE),
    Tensor("center",          "F",   T),
    Tensor("group?",          "F",   I64, r.index("G")),
    Tensor("index?",          "F",   I64, r.index("D")),
)
KERNELS = {  # below prior.kernel; parts of a kernel are found in its arguments
    **dict.fromkeys(("RBF", "Matern12", "Matern32", "Matern52"), SCALED),
    "RationalQuadratic": (*SCALED, Tensor("log_alpha", "K", T, r.LOG)),
    "Periodic": (*SCALED, Tensor("log_period", "K G", T, r.LOG)),
    "Linear": (*SCALED, Tensor("square_reach?", "", T, r.POSITIVE)),
    "Constant": (Tensor("log_variance", "K", T, r.LOG),),
    **dict.fromkeys(("Sum", "Product"), ()),
}

ROWS = (  # below rows., of a regressor that predicts from its training rows
    Tensor("y",      "N",   F64, r.BOUNDED),
    Tensor("X",      "N D", F64),
    Tensor("weight", "N",   F64, r.WEIGHT),
    Tensor("alpha",  "N",   F64, r.WIDE),
    Tensor("a?",     "M N", F64),  # this and the next: of version 0.3
    Tensor("lower?", "M M", F64, r.PRECISION_FACTOR),
)

TREES = (  # below pool., of each member
    Tensor("feature",   "nodes",       SMALL, r.index("D")),
    Tensor("threshold", "nodes",       FLOAT),
    Tensor("child",     "nodes",       INT, r.index("nodes")),
    Tensor("leaf",      "nodes",       SMALL, r.index("values")),
    Tensor("value",     "values leaf", FLOAT, r.LEAVES),
    Tensor("root",      "trees",       INT, r.index("nodes")),
    Tensor("column",    "trees",       INT, r.index("scores")),
    Tensor("start",     "scores",      FLOAT, r.BOUNDED),
    Tensor("block?",    "D",           SMALL, r.index("D")),
    Tensor("code?",     "D",           F64, r.BOUNDED),
)
NETWORK = (  # the same for networks
    Tensor("used",        "used",             SMALL, r.index("D")),
    Tensor("shift",       "used",             F64, r.WIDE),
    # negative where a column is mirrored
    Tensor("scale",       "used",             F64, r.BOUNDED),
    Tensor("first",       "nets used one",    FLOAT, r.BOUNDED),
    Tensor("first_bias",  "nets 1 one",       FLOAT, r.BOUNDED),
    Tensor("second",      "nets one two",     FLOAT, r.BOUNDED),
    Tensor("second_bias", "nets 1 two",       FLOAT, r.BOUNDED),
    Tensor("last",        "nets two classes", FLOAT, r.BOUNDED),
    Tensor("last_bias",   "nets 1 classes",   FLOAT, r.BOUNDED),
)
LINEAR_MODEL = (  # the same for logistic regression
    Tensor("used",  "used",         SMALL, r.index("D")),
    Tensor("shift", "used",         F64, r.WIDE),
    Tensor("scale", "used",         F64, r.NOT_NEGATIVE),
    Tensor("slope", "used classes", FLOAT, r.BOUNDED),
    Tensor("bias",  "1 classes",    FLOAT, r.BOUNDED),
)

# fmt: on

# arrays that a user gave, of any shape and type; sums in files of 0.3
FREE = ("arguments.", "likelihood.", "growing.")

# recorded for every epoch, whatever the method
RECORDED = ("epoch", "objective", "log_evidence", "seconds", "repairs")
NUMBER = r.number()
WEIGHT = r.number(0, 1000)
COUNT = r.whole(0, 1 << 62)
SCALE = r.number(0, 1e150, above=True)
MEMBERS: dict[str, r.Check] = {  # their scores
    "members?.names": r.many(r.text, "scored members", most=1000),
    "members?.weight": r.many(WEIGHT, "scored members"),
    "members?.log_loss": r.many(r.any_number, "scored members"),
    "members?.gain": r.many(r.any_number, "scored members"),
    "members?.seconds": r.many(r.number(0), "scored members"),
}
FACTS: dict[str, r.Check] = {
    "version?": r.text,
    "arguments": r.mapping,
    "notes": r.mapping,
    "names?": r.many(r.text, "D"),
    "preparation?": r.mapping,
    "summary?": r.mapping,
    "plan?": r.mapping,
    "prior.learn": r.many(r.text),
    "prior.kernels": r.anything,
    "prior.spectrum?": r.flag,  # of version 0.3
    "prior.frequencies?": r.flag,  # inducing inputs are those of cosines and sines
    "likelihood": r.mapping,
    "history": r.many(r.by_name(r.scalar, *RECORDED)),
    "warnings?": r.many(r.text),
    "scalars.log_marginal_likelihood_?": r.any_number,
    # shift and scale of a regressor's targets
    "units?": r.row(r.number(-1e300, 1e300), SCALE),
    "classes?.type": r.text,
    "classes?.values": r.many(r.scalar),
    "calibration?": r.text,
    "class_prior?": r.numbers(r.SHARES, "classes"),
    "importance?": r.many(r.number(0), "columns"),
    "pool?.weight": r.number(0, 1000, above=True),
    "pool?.weights": r.many(WEIGHT, "pool members", most=1000),
    "pool?.boosted": r.many(r.kind_of_member, "pool members"),
    "pool?.gate?.scale": r.many(r.number(0, 1e300), "C"),
    "pool?.gate?.usual": r.number(-1, 1),
    **MEMBERS,
    "predicts?.residual": r.flag,  # variances include it
    "predicts?.tolerance": r.number(0, 1),  # of conjugate gradients at training rows
    "novelty?.scale": r.many(r.number(0, 1e300), "C"),
    "novelty?.quantiles": r.numbers(r.QUANTILE),
    "shares?": r.many(r.column_shares),
    "estimate?.how": r.text,
    "estimate?.rows": COUNT,
    "estimate?.log_loss": r.any_number,
    "estimate?.standard_error": r.any_number,
    "estimate?.accuracy": r.number(0, 1.001),
    "estimate?.baseline_log_loss": r.any_number,  # infinite if a class has weight 0
    "estimate?.baseline_accuracy": r.number(0, 1.001),
    "estimate?.true": r.many(r.number(0), "classes"),
    "estimate?.predicted": r.many(r.number(0), "classes"),
    "estimate?.seen?": r.flag,
    "target_estimate?.how": r.text,
    "target_estimate?.rows": COUNT,
    **{
        f"target_estimate?.{name}": r.any_number
        for name in TargetEstimate._fields[2:-1]
    },
    "target_estimate?.scores": r.many(r.number(0), most=500),
    "target_spread?.low": r.many(r.any_number, most=MOST_TERMS),
    "target_spread?.middle": r.many(r.any_number, most=MOST_TERMS),
    "target_spread?.high": r.many(r.any_number, most=MOST_TERMS),
    "target_spread?.beta": r.many(r.any_number, most=MOST_TERMS),
}

SUMMARY: dict[str, r.Check] = {  # what `cavity info` prints
    "method": r.text,
    "kernel": r.text,
    "classes": r.many(r.text),
    "inducing_points": COUNT,
    "noise": r.number_or_list,  # per class, or of the targets
    "rows_inside": r.text,
    "n_features": COUNT,
    "dtype": r.text,
    "epochs": COUNT,
    "log_marginal_likelihood?": r.any_number,
    "temperature?": r.number(0),
    "calibration?": r.text,
    "ensemble_weights": r.many(WEIGHT),
    "target?": r.text,
    "columns?": r.by_name(r.text),
    "relevance?": r.by_name(NUMBER),
    "evidence?": r.text,
    "importance?": r.by_name(NUMBER),
    "plan?": r.text,
    "has_estimate?": r.flag,
    "pool?": r.by_name(NUMBER),
    "members?": r.anything,  # the checked ones of the file take their place
}


def check_facts(
    meta: dict[str, Any], facts: dict[str, r.Check], sizes: r.Sizes
) -> None:
    """Raise BadFile unless the JSON of a file passes these checks."""
    for marked, check in facts.items():
        value: Any = meta
        name = marked.replace("?", "")
        for part in marked.split("."):
            key = part.removesuffix("?")
            if not isinstance(value, dict):
                raise BadFile(f"{name} is not a JSON object.")

            is_missing = key not in value
            value = value.get(key)
            if value is None and part.endswith("?"):
                break
            if is_missing:
                raise BadFile(f"the file lacks {name}.")
        else:
            check(value, name, sizes)


def count_scored(meta: dict[str, Any]) -> int:
    """Return the number of classifiers that have scores."""
    members = meta.get("members")
    if not isinstance(members, dict) or not isinstance(members.get("names"), list):
        return 0

    return len(members["names"])


def read_summary(meta: dict[str, Any]) -> dict[str, Any]:
    """Return the facts that `cavity info` prints; None for those that are missing."""
    check_facts(meta, {"summary": r.mapping}, {})
    check_facts(meta["summary"], SUMMARY, {})
    summary: dict[str, Any] = dict.fromkeys(name.removesuffix("?") for name in SUMMARY)
    summary |= meta["summary"]
    check_facts(meta, MEMBERS, {"scored members": count_scored(meta)})
    summary["members"] = meta.get("members")
    if isinstance(summary["noise"], list) != bool(summary["classes"]):
        raise BadFile("noise: each class has one, or the targets.")

    return summary
