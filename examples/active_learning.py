"""Active learning: which rows are worth a label?

Somebody has to read every digit that we want to learn from. We have 600 digits without
labels, of five kinds, and ask for 60 labels: ten at random to begin with, then ten at
a time. `rank_for_labeling` prefers rows about which the model would learn the most. We
compare it with rows chosen at random.
"""

# %% 600 digits to choose from, 300 to judge
import numpy as np
from scipy.spatial.distance import pdist
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from cavity import GPClassifier, Training
from cavity.kernels import RBF

X, y = load_digits(n_class=5, return_X_y=True)
# ten numbers per digit, found without labels
X = PCA(10, random_state=0).fit_transform(X)
order = np.random.default_rng(0).permutation(len(X))
pool = order[:600]
test = order[600:900]

# %% A few labels cannot teach a kernel: learnt from them, ranking was worse than chance
# up to 35 labels. So we fix it: digits at half the usual distance are alike
kernel = RBF(lengthscale=np.median(pdist(X[pool])) / 2, variance=10.0)
fixed = Training(noise=0.5, learn=())


def train(rows):
    """Fit on the digits that have labels so far."""
    clf = GPClassifier(
        kernel=kernel, inducing=X[rows], training=fixed, effort="fast", random_state=0
    )
    return clf.fit(X[rows], y[rows])


# %% Ask for labels, ten at a time, and judge the model after each round
def ask(choose):
    """Return the accuracy on new digits after each round of questions."""
    known = list(pool[:10])
    scores = []
    clf = train(known)
    while len(known) < 60:
        left = np.setdiff1d(pool, known)
        known.extend(left[choose(clf, left)])
        clf = train(known)
        scores.append(clf.score(X[test], y[test]))
    return np.array(scores)


ranked = ask(lambda clf, left: clf.rank_for_labeling(X[left], n=10))
draws = [np.random.default_rng(seed) for seed in range(2)]
chance = np.mean(
    [
        ask(lambda clf, left, rng=rng: rng.choice(len(left), 10, replace=False))
        for rng in draws
    ],
    axis=0,
)
labels = np.arange(20, 61, 10)
for n, a, b in zip(labels, ranked, chance, strict=True):
    print(f"{n} labels: {a:.3f} with rank_for_labeling, {b:.3f} at random")

# %% The number to check: how many labels it takes to be as good as 60 random ones
enough = labels[(ranked >= chance[-1]).argmax()]
print(f"{enough} chosen labels are as good as 60 random ones")
assert enough <= 30 and ranked[-1] > chance[-1] + 0.01
