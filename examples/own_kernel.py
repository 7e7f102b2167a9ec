"""Your own torch module as a kernel: here a network whose features a Gaussian process
classifies.

A kernel is any torch module with three calls, batched over classes: `full(Z)`,
`cross(Z, X)` and `diag(X)`. Its parameters are learnt together with everything else, in
a copy: `kernel_`. Keep the module deterministic, so without dropout. A model file does
not hold its code: load it with `cavity.load(path, kernel=...)`.
"""

# %% Three rings, which no linear function of the columns separates
import numpy as np
import torch
from sklearn.model_selection import train_test_split

from cavity import GPClassifier, Training

rng = np.random.default_rng(0)
y = np.arange(300) % 3
angle = rng.uniform(0, 2 * np.pi, 300)
radius = 0.3 + y + 0.25 * rng.normal(size=300)
X = np.c_[radius * np.cos(angle), radius * np.sin(angle)]
X, X_test, y, y_test = train_test_split(X, y, stratify=y, random_state=0)


# %% exp(−½ |net(x) − net(x')|²)
class DeepKernel(torch.nn.Module):
    def __init__(self, columns, hidden, features):
        super().__init__()
        torch.manual_seed(0)
        first = torch.nn.Linear(columns, hidden)
        second = torch.nn.Linear(hidden, features)
        self.net = torch.nn.Sequential(first, torch.nn.Tanh(), second).double()

    def cross(self, Z, X):  # [C M D] and [N D] → [C M N]
        return torch.exp(-0.5 * torch.cdist(self.net(Z), self.net(X)) ** 2)

    def full(self, Z):  # [C M D] → [C M M]
        return self.cross(Z, Z)

    def diag(self, X):  # [N D] → [C N], or [1 N] if all classes share it
        return torch.ones(1, len(X), dtype=X.dtype, device=X.device)


# %% With the weights learnt, and with those that the network began with
found = {}
for what, learn in {
    "learnt": ("kernel", "noise", "inducing"),
    "fixed": ("noise", "inducing"),
}.items():
    how = Training(learn=learn, tol=0.1)
    clf = GPClassifier(
        "ep", kernel=DeepKernel(2, 16, 2), n_inducing=20, training=how, random_state=0
    )
    found[what] = clf.fit(X, y).log_marginal_likelihood_
    print(
        f"{what:7} weights: log evidence {found[what]:7.1f}, accuracy "
        f"{clf.score(X_test, y_test):.3f}"
    )

# %% The number to check: learning the network raises the evidence
print(f"learning gains {found['learnt'] - found['fixed']:.1f} nats")
assert found["learnt"] > found["fixed"] + 10
