"""Every oracle under one name: `from .reference.brute_ep import sparse_ep`."""

from .exact import binary_log_evidence_dblquad, binary_log_evidence_orthant, exact_log_evidence_mc
from .full import (
    full_binary_ep,
    full_binary_predict,
    full_multiclass_ep,
    full_multiclass_latent,
    full_multiclass_predict,
    gp_regression,
)
from .probit import class_probabilities
from .sparse import (
    EPResult,
    SparseModel,
    binary_predict_proba,
    binary_sparse_ep,
    latent,
    log_evidence,
    predict_proba,
    site_totals,
    sparse_ep,
)
from .tied import SEPResult, binary_sep, sep

__all__ = [
    "EPResult",
    "SEPResult",
    "SparseModel",
    "binary_log_evidence_dblquad",
    "binary_log_evidence_orthant",
    "binary_predict_proba",
    "binary_sep",
    "binary_sparse_ep",
    "class_probabilities",
    "exact_log_evidence_mc",
    "full_binary_ep",
    "full_binary_predict",
    "full_multiclass_ep",
    "full_multiclass_latent",
    "full_multiclass_predict",
    "gp_regression",
    "latent",
    "log_evidence",
    "predict_proba",
    "sep",
    "site_totals",
    "sparse_ep",
]
