"""Fit on a GPU, from tensors that are there already. Skips if there is none.

You need no argument: `device="auto"` uses the GPU if the table is large enough to pay.
Here we ask for it, and compare with the CPU. Results are NumPy arrays, whatever the
rows were.
"""

# %% 10,000 rows on the GPU
import sys
import time
import warnings

import numpy as np
import torch
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning

from cavity import GPClassifier

if not torch.cuda.is_available():
    print("skipped: there is no GPU")
    sys.exit()

X, y = make_classification(
    14_000,
    20,
    n_informative=10,
    n_classes=4,
    n_clusters_per_class=2,
    class_sep=1.5,
    random_state=0,
)
X_gpu = torch.tensor(X, device="cuda")
y_gpu = torch.tensor(y, device="cuda")


# %% The same fit twice. Three passes over the rows are enough to compare
warnings.simplefilter("ignore", ConvergenceWarning)


def fit(device):
    """Fit, and return the model with its seconds."""
    clf = GPClassifier(
        "ep",
        n_inducing=200,
        batch_size=2000,
        max_epochs=3,
        effort="fast",
        device=device,
        random_state=0,
    )
    begun = time.perf_counter()
    return clf.fit(X_gpu[:10_000], y_gpu[:10_000]), time.perf_counter() - begun


(on_gpu, seconds), (on_cpu, longer) = fit("cuda"), fit("cpu")
p = on_gpu.predict_proba(X_gpu[10_000:])
q = on_cpu.predict_proba(X[10_000:])
print(
    f"GPU {seconds:.1f} s, CPU {longer:.1f} s; accuracy "
    f"{on_gpu.score(X_gpu[10_000:], y_gpu[10_000:]):.3f}"
)

# %% The number to check: both devices agree up to rounding
difference = np.abs(p - q).max()
print(f"largest difference of a probability: {difference:.1e}")
assert isinstance(p, np.ndarray) and difference < 1e-4
