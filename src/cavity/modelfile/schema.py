"""The schema of a model file: every tensor with its shape, type and range, and every JSON value. A new entry is one line.

Both readers and `cavity info` check files against these tables, so that they refuse the same files in the same words.

Letters of shapes (`1|C` is either; a letter without a meaning here is any number, the same within one group of tensors):

    C  latent functions       H  inducing points, or frequencies       D  features
    M  values per function    B  blocks of q, C or 1 if coupled        W  values per block
    K  sets of kernel parameters, 1 or C                               G  lengthscales, D if none are shared
    P  learnt numbers         Q  learnt logarithms, which have a prior

Types: T is the type of the model, float64 or float32. A "?" marks what may be missing or null; `since` is the first format that
needs a value.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from cavity.errors import BadFile
from cavity.modelfile.ranges import (
    BOUNDED,
    CHILD,
    FACTOR,
    FINITE,
    LEAVES,
    LOG,
    NOT_NEGATIVE,
    POSITIVE,
    PRECISION,
    PRECISION_FACTOR,
    SHARE,
    SHARES,
    WIDE,
    Check,
    Range,
    Sizes,
    by_name,
    flag,
    index,
    many,
    mapping,
    maybe,
    number,
    number_or_list,
    row,
    scalar,
    shares,
    text,
    whole,
)

F64, I64, T = "F64", "I64", "T"
INT, FLOAT = "I32|I64", "F64|F32"


class Tensor(NamedTuple):
    """A tensor of a model file."""

    name: str
    shape: str
    dtype: str
    range: Range = FINITE


class Fact(NamedTuple):
    """A JSON value of a model file."""

    name: str
    check: Check
    since: int = 1


class Kind(NamedTuple):
    """What a file says about its estimator, known without the estimator's class, which needs scikit-learn."""

    owner: str  # name of the class
    task: str
    method: Any  # default of the argument


KINDS = {
    "model": Kind("GPClassifier", "classification", "auto"),
    "regressor": Kind("GPRegressor", "regression", "exact"),
}  # by what a file calls itself


MODEL = (
    Tensor("mean", "B W", T, BOUNDED),
    Tensor("lower", "B W W", T, PRECISION_FACTOR),
    Tensor("prior_lower", "1|C M M", T, FACTOR),
    Tensor("prior.inducing", "1|C H D", T),
    Tensor("prior.center", "D", T),
    Tensor("prior.spread", "D", T, POSITIVE),
    Tensor("prior.log_noise?", "1|C", T, LOG),  # if it is learnt
    Tensor("prior.fixed_noise?", "1|C", T, NOT_NEGATIVE),  # otherwise
    Tensor("factor.log_noise?", "1", T, LOG),  # Gaussian
    Tensor("factor.epsilon?", "", F64, SHARE),  # RobustMax
    Tensor("factor.log_odds?", "1", T, LOG),  # RobustMax, if it is learnt
    Tensor("feature_relevance?", "F", F64, SHARES),
)

SCALED = (
    Tensor("log_lengthscale", "K G", T, LOG),
    Tensor("log_variance", "K", T, LOG),
    Tensor("unit", "D", T, POSITIVE),
    Tensor("center", "D", T),
    Tensor("group?", "D", I64, index("G")),
)
RANKS = (
    Tensor("place", "d", I64, index("D")),
    Tensor("left", "d knots", T),
    Tensor("height", "d knots", T),
    Tensor("slope", "d knots", T),
    Tensor("last", "d", T),
)
KERNELS = {  # below prior.kernel; parts of a kernel are found in its arguments
    "RBF": SCALED,
    "Matern12": SCALED,
    "Matern32": SCALED,
    "Matern52": SCALED,
    "RationalQuadratic": (*SCALED, Tensor("log_alpha", "K", T, LOG)),
    "Linear": SCALED,
    "Constant": (Tensor("log_variance", "K", T, LOG),),
    "Ranked": RANKS,
    "Sum": (),
    "Product": (),
}

ROWS = (  # of a regressor that predicts from its training rows
    Tensor("rows.y", "N", F64, BOUNDED),
    Tensor("rows.X", "N D", F64),
    Tensor("rows.weight", "N", F64, POSITIVE),
    Tensor("rows.a", "M N", F64),
    Tensor("rows.lower", "M M", F64, PRECISION_FACTOR),
    Tensor("rows.alpha", "N", F64, WIDE),
)

GROWING = (  # what partial_fit adds to
    Tensor("growing.P", "C M M", F64, PRECISION),
    Tensor("growing.h", "C M", F64),
    Tensor("growing.counts", "C", F64, NOT_NEGATIVE),
    Tensor("growing.total", "", F64, NOT_NEGATIVE),
    Tensor("growing.center", "D", F64),
    Tensor("growing.spread", "D", F64, POSITIVE),
    Tensor("growing.theta", "P", T),
    Tensor("growing.prior.mean", "Q", T),
    Tensor("growing.epoch", "", I64, NOT_NEGATIVE),
    Tensor("growing.damping", "", F64, NOT_NEGATIVE),
    Tensor("growing.rate", "", F64, NOT_NEGATIVE),
    Tensor("growing.jitter", "", F64, NOT_NEGATIVE),
    Tensor("growing.clock", "", F64),
)
OPTIMISER = Tensor("growing.optimiser.", "|P", T)  # followed by a number

TREES = (  # of each member of pool. and prior_mean.
    Tensor("feature", "nodes", INT, index("D")),
    Tensor("threshold", "nodes", FLOAT),
    Tensor("left", "nodes", INT, CHILD),
    Tensor("right", "nodes", INT, CHILD),
    Tensor("value", "nodes leaf", FLOAT, LEAVES),
    Tensor("root", "trees", INT, index("nodes")),
    Tensor("column", "trees", INT, index("scores")),
    Tensor("start", "scores", FLOAT, BOUNDED),
)

FREE = ("arguments.", "likelihood.", "selection.")  # arrays that a user gave, of any shape and type
OWN = ("prior.kernel.", "factor.")  # values of a kernel or a likelihood that is not of this package

RECORDED = ("epoch", "objective", "log_evidence", "seconds", "repairs")  # of every epoch, whatever the method
NUMBER, WEIGHT, COUNT = number(), number(0, 1000), whole(0, 1 << 62)
POSITIVE_NUMBER = number(0, 1e300, above=True)
FACTS = (
    Fact("version?", text),
    Fact("arguments", mapping),
    Fact("notes", mapping),
    Fact("names?", many(text, "D")),
    Fact("preparation?", mapping),
    Fact("rows?", text),
    Fact("summary?", mapping),
    Fact("prior.learn", many(text)),
    Fact("prior.kernels", whole(1, 1, "C")),
    Fact("prior.spectrum", flag, since=2),
    Fact("likelihood", mapping, since=2),
    Fact("factor?", text),  # of format 1
    Fact("learnt noise?", flag),  # of format 1
    Fact("history", many(by_name(scalar, *RECORDED))),
    Fact("warnings?", many(text)),
    Fact("scalars.log_marginal_likelihood_?", NUMBER),
    Fact("units?", row(number(-1e300, 1e300), number(0, 1e150, above=True))),  # shift and scale of targets
    Fact("classes?.type", text),
    Fact("classes?.values", many(scalar)),
    Fact("calibration?", text),
    Fact("class_prior?", shares),
    Fact("importance?", many(number(0), "columns")),
    Fact("pool?.weight", number(0, 1000, above=True)),
    Fact("pool?.weights", many(WEIGHT, "pool members", most=1000)),
    Fact("pool?.boosted", many(flag, "pool members")),
    Fact("prior_mean?.weights", many(number(-1000, 1000), "prior_mean members", most=1000)),
    Fact("prior_mean?.boosted", many(flag, "prior_mean members")),
    Fact("growing?.sites.weighted", flag),
    Fact("growing?.sites.tempers", flag),
    Fact("growing?.sites.unit", POSITIVE_NUMBER),
    Fact("growing?.optimiser", whole(0, 8)),
    Fact("growing?.width", whole(0, 2, "C")),
    Fact("growing?.exact", flag),
    Fact("growing?.pooled?", flag),
    Fact("growing?.distance", POSITIVE_NUMBER),
    Fact("growing?.lightest", POSITIVE_NUMBER),
    Fact("growing?.heaviest", POSITIVE_NUMBER),
    Fact("estimate?.how", text),
    Fact("estimate?.rows", COUNT),
    Fact("estimate?.log_loss", number(-1e-6)),
    Fact("estimate?.standard_error", number(0)),
    Fact("estimate?.accuracy", number(0, 1.001)),
    Fact("estimate?.baseline_log_loss", number(finite=False)),  # infinite if a class has weight 0
    Fact("estimate?.baseline_accuracy", number(0, 1.001)),
    Fact("estimate?.true", many(number(0), "classes")),
    Fact("estimate?.predicted", many(number(0), "classes")),
    Fact("selection?.selected", text),
    Fact("selection?.how", text),
    Fact("selection?.scores", many(row(text, maybe(NUMBER), maybe(NUMBER)), most=100)),
    Fact("selection?.robust", flag),
    Fact("selection?.kernel?", mapping),
    Fact("selection?.points?", COUNT),
)

SUMMARY = (  # what `cavity info` prints
    Fact("method", text),
    Fact("kernel", text),
    Fact("classes", many(text)),
    Fact("inducing_points", COUNT),
    Fact("features?", COUNT),
    Fact("noise", number_or_list),  # of each class, or of the targets
    Fact("rows_inside", text),
    Fact("n_features", COUNT),
    Fact("dtype", text),
    Fact("epochs", COUNT),
    Fact("log_marginal_likelihood?", NUMBER),
    Fact("temperature", number(0)),
    Fact("calibration?", text),
    Fact("ensemble_weights", many(WEIGHT)),
    Fact("target?", text),
    Fact("columns?", by_name(text)),
    Fact("relevance?", by_name(NUMBER)),
)
LATER = (  # files of 0.2 have none
    Fact("mean_weights?", many(NUMBER)),
    Fact("importance?", by_name(NUMBER)),
)


def check_facts(meta: dict[str, Any], facts: tuple[Fact, ...], number: int, sizes: Sizes) -> None:
    """Raise BadFile unless the JSON of a file of this format has these facts."""
    for fact in facts:
        value: Any = meta
        for part in fact.name.split("."):
            key = part.removesuffix("?")
            if not isinstance(value, dict):
                raise BadFile(f"{fact.name} is not a JSON object.")
            value, missing = value.get(key), key not in value
            if value is None and (part.endswith("?") or (missing and number < fact.since)):
                break
            if missing:
                raise BadFile(f"the file lacks {fact.name.replace('?', '')}.")
        else:
            fact.check(value, fact.name.replace("?", ""), sizes)


def read_summary(meta: dict[str, Any]) -> dict[str, Any] | None:
    """Return what `cavity info` prints of a file; None if the file is older than that."""
    found = meta.get("summary")
    if not isinstance(found, dict) or not {fact.name.removesuffix("?") for fact in SUMMARY} <= found.keys():
        return None
    check_facts(found, (*SUMMARY, *LATER), meta["format"], {})
    if isinstance(found["noise"], list) != bool(found["classes"]):
        raise BadFile("noise: each class has one, or the targets.")
    return found
