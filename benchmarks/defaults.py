"""Seconds that the defaults take: iris, digits, and 100,000 generated rows with 20 columns and 5 classes.

python benchmarks/defaults.py [--sets iris digits large]
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
import torch
from sklearn.datasets import load_digits, load_iris, make_classification
from sklearn.model_selection import train_test_split

from cavity import GPClassifier


def large() -> tuple[np.ndarray, np.ndarray]:
    return make_classification(
        100_000, 20, n_informative=10, n_classes=5, n_clusters_per_class=2, class_sep=1.5, random_state=0
    )


LOADERS = {
    "iris": lambda: load_iris(return_X_y=True),
    "digits": lambda: load_digits(return_X_y=True),
    "large": large,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=list(LOADERS), choices=list(LOADERS))
    parser.add_argument("--methods", nargs="+", default=["ep", "sep"])
    args = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(
        f"{'data':8} {'method':6} {'rows':>7} {'fit s':>7} {'epochs':>6} {'NLL':>7} {'error':>6} {'predict s':>9} {'peak MB':>8}"
    )
    for name in args.sets:
        X, y = LOADERS[name]()
        X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, stratify=y, random_state=0)
        for method in args.methods:
            begin = time.perf_counter()
            clf = GPClassifier(method, random_state=0).fit(X_train, y_train)
            middle = time.perf_counter()
            log_p = clf.predict_log_proba(X_test)
            end = time.perf_counter()
            nll, error = -log_p[np.arange(len(y_test)), y_test].mean(), (log_p.argmax(1) != y_test).mean()
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"{name:8} {method:6} {len(X_train):7d} {middle - begin:7.2f} {clf.n_epochs_:6d} {nll:7.4f} {error:6.4f} "
                f"{end - middle:9.2f} {peak:8.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
