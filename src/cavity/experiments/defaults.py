"""What our default does with a table of a given size."""

from __future__ import annotations


def our_sizes(n_rows: int, n_classes: int) -> tuple[int, int | None]:
    """M and batch size of our default for a table of this size."""
    from cavity import GPClassifier
    from cavity.estimators.options import read
    from cavity.estimators.values import inducing_count

    default = GPClassifier()
    M = min(inducing_count(default.n_inducing, n_rows), n_rows)
    latent = 1 if n_classes == 2 else n_classes
    return M, read(default, n_rows, latent, M).batch_size
