"""Three classifiers on the digits that scikit-learn ships: a table and a figure.

`make demo` runs this file.

The default of `GPClassifier` needs no choices; "sep" alone is one of the methods behind
it, and logistic regression is the baseline that everyone has.
"""

# %% 1,198 images of 64 pixels to learn from, 599 to judge
import time
import warnings
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cavity import GPClassifier, plots
from cavity.report import reliability

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(
    X, y, train_size=1198, stratify=y, random_state=0
)
models = {
    "GPClassifier": GPClassifier(random_state=0),
    "SEP alone": GPClassifier("sep", n_inducing=30, max_epochs=60, random_state=0),
    "logistic regression": make_pipeline(
        StandardScaler(), LogisticRegression(max_iter=1000)
    ),
}

# %% The table: log loss, errors, and how far confidence and accuracy differ; lower is
# better
print(f"{'model':<20} {'log loss':>8} {'error':>6} {'ECE':>6} {'seconds':>8}")
losses, figure, axes = {}, *plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
for name, model in models.items():
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ConvergenceWarning
        )  # SEP has a limit of 60 epochs
        model.fit(X, y)
    seconds = time.perf_counter() - begun
    P = model.predict_proba(X_test)
    losses[name], wrong = log_loss(y_test, P), 1 - accuracy_score(y_test, P.argmax(1))
    error = reliability(P, y_test).error
    print(f"{name:<20} {losses[name]:8.3f} {wrong:6.3f} {error:6.3f} {seconds:8.1f}")
    plots.reliability_diagram(
        P,
        y_test,
        axes[0],
        label=f"{name}: ECE {error:.3f}",
        colour=f"C{len(losses) - 1}",
    )

# %% The figure: reliability, and how the training of SEP went
axes[0].set_title("Reliability: the diagonal is perfect")
axes[0].legend()
history = models["SEP alone"].history_
axes[1].plot(
    [row["epoch"] for row in history],
    [row["objective"] / len(y) for row in history],
    label="SEP",
)
axes[1].set(xlabel="epoch", ylabel="objective per row")
axes[1].set_title("Learning curve")
folder = Path("demo-output")
folder.mkdir(exist_ok=True)
figure.savefig(folder / "demo.png", dpi=100)
print(f"figure: {folder / 'demo.png'}")

# %% The number to check: the default is the best of the three
print(
    f"log loss {losses['GPClassifier']:.3f}, logistic regression "
    f"{losses['logistic regression']:.3f}"
)
assert losses["GPClassifier"] == min(losses.values())
