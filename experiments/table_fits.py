"""One fit of one table in a process of its own: `python -m experiments.table_fits JOB`,
where JOB and the answer are JSON.

The process has one thread and the package of the tree that PYTHONPATH names. Seconds
are CPU seconds, without imports: each method first fits a table of a few rows.
"""

from __future__ import annotations

import base64
import importlib
import json
import sys
import time
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.table_data import NUMERIC_ROWS, Split, read_table, split_table

Array = NDArray[np.float64]
FLOOR = 1e-15  # smallest probability that counts, as in scikit-learn's log_loss
MOST_LEVELS = 200  # of a category, for peers that take categories
PATIENCE = 50  # rounds of boosting without improvement
AUTOGLUON_SECONDS = 90
OURS = {"default": "", "fast": "effort='fast'"}
MEMBERS = {  # what a member is called in `default-MEMBER` → its name in the package
    "networks": "networks",
    "forest": "extra trees",
    "boosting": "boosting",
    "linear": "logistic regression",
    "frequencies": "class frequencies",
}


# ---------------------------------------------------------------- cavity
class Ours:
    """GPClassifier, with or without one of the members of its pool."""

    def __init__(self, method: str) -> None:
        effort, _, member = (
            method.partition("-") if "=" not in method else (method, "", "")
        )
        self.options: dict[str, Any] = {"random_state": 0, "device": "cpu"}
        self.options |= eval(f"dict({OURS.get(effort, effort)})")
        self.without = MEMBERS[member] if member else None
        if self.without:
            self._drop_member()

    def _drop_member(self) -> None:
        fitting = importlib.import_module("cavity.fitting.planning")
        make = fitting.make_members

        def make_members(*arguments: Any, **named: Any) -> Any:
            return [
                recipe
                for recipe in make(*arguments, **named)
                if recipe.name != self.without
            ]

        vars(fitting)["make_members"] = make_members

    def fit(self, data: Split) -> Any:
        from cavity import GPClassifier

        return GPClassifier(**self.options).fit(
            data.X.iloc[data.train], data.y[data.train]
        )

    def describe(self, model: Any) -> dict[str, Any]:
        """Return the weights of the members, and the estimate of the log loss with its
        standard error.
        """
        named = getattr(model._fitted.pool, "named_weights", None)
        named = named or {str(i): w for i, w in enumerate(model.ensemble_weights_)}
        found: dict[str, Any] = {
            "weights": {name: round(float(w), 4) for name, w in named.items()}
        }
        try:
            estimate = model.estimate_
        except (AttributeError, ValueError):
            return found
        return found | {
            "estimate": [float(estimate.log_loss), float(estimate.standard_error)]
        }


# ---------------------------------------------------------------- peers
def _take_columns(data: Split) -> Any:
    return data.X


def find_texts(X: Any) -> list[str]:
    """Return the columns that are not numbers."""
    import pandas as pd

    return [
        k
        for k in X.columns
        if not pd.api.types.is_numeric_dtype(X[k]) or X[k].dtype == bool
    ]


def with_categories(data: Split) -> Any:
    """Return the columns with texts as categories: the most frequent levels of the
    training rows.
    """
    import pandas as pd

    X = data.X.copy()
    for k in find_texts(X):
        levels = X[k].iloc[data.train].astype(str).value_counts().index[:MOST_LEVELS]
        X[k] = pd.Categorical(X[k].astype(str), categories=levels)
    return X


def hold_out(data: Split) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return rows to fit to and rows that stop boosting, which have no other class."""
    count = max(PATIENCE, len(data.train) // 10)
    rest = data.train[count:]
    held = data.train[:count]
    return rest, held[np.isin(data.y[held], data.y[rest])]


def fit_hgb(data: Split) -> Any:
    """HistGradientBoosting with early stopping and rate 0.05."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(
        early_stopping=True,
        max_iter=1000,
        learning_rate=0.05,
        categorical_features="from_dtype",
        random_state=0,
    )
    return model.fit(data.X.iloc[data.train], data.y[data.train])


def fit_lgbm(data: Split) -> Any:
    """LightGBM with early stopping and rate 0.05."""
    import lightgbm

    rest, held = hold_out(data)
    model = lightgbm.LGBMClassifier(
        verbose=-1, n_jobs=1, n_estimators=2000, learning_rate=0.05
    )
    return model.fit(
        data.X.iloc[rest],
        data.y[rest],
        eval_set=[(data.X.iloc[held], data.y[held])],
        callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)],
    )


def fit_cat(data: Split) -> Any:
    """CatBoost with early stopping and its own treatment of categories."""
    import catboost

    rest, held = hold_out(data)
    model = catboost.CatBoostClassifier(
        thread_count=1,
        verbose=0,
        early_stopping_rounds=PATIENCE,
        cat_features=find_texts(data.X),
        allow_writing_files=False,
    )
    return model.fit(
        data.X.iloc[rest], data.y[rest], eval_set=(data.X.iloc[held], data.y[held])
    )


def fit_lr(data: Split) -> Any:
    """Logistic regression on standardised numbers and one column per level."""
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    columns = make_column_transformer(
        (numbers, make_column_selector(dtype_include="number")),
        (
            OneHotEncoder(handle_unknown="ignore"),
            make_column_selector(dtype_exclude="number"),
        ),
    )
    model = make_pipeline(columns, LogisticRegression(max_iter=500))
    return model.fit(data.X.iloc[data.train], data.y[data.train])


def fit_prior(data: Split) -> Any:
    """Class frequencies."""
    from sklearn.dummy import DummyClassifier

    return DummyClassifier(strategy="prior").fit(
        data.X.iloc[data.train], data.y[data.train]
    )


def fit_realmlp(data: Split) -> Any:
    """RealMLP with the tuned defaults of pytabkit; a tenth of the rows chooses the
    epoch.
    """
    from pytabkit import RealMLP_TD_Classifier

    model = RealMLP_TD_Classifier(
        device="cpu",
        random_state=0,
        n_cv=1,
        val_metric_name="cross_entropy",
        use_ls=False,
        n_threads=1,
    )
    return model.fit(data.X.iloc[data.train], data.y[data.train])


def fit_autogluon(data: Split) -> Any:
    """AutoGluon, `medium_quality`, 90 seconds."""
    import tempfile

    from autogluon.tabular import TabularPredictor

    with tempfile.TemporaryDirectory() as folder:
        rows = data.X.iloc[data.train].assign(target=data.y[data.train])
        model = TabularPredictor(
            "target", eval_metric="log_loss", path=folder, verbosity=0
        )
        model.fit(
            rows, presets="medium_quality", time_limit=AUTOGLUON_SECONDS, num_cpus=1
        )
        found = model.predict_proba(data.X.iloc[data.test])

    P = np.asarray(found, dtype=np.float64)
    return SimpleNamespace(
        classes_=np.asarray(found.columns), predict_proba=lambda _: P
    )


def fill_numbers(data: Split) -> Any:
    """Return the columns with categories, and the mean of the training rows for missing
    numbers.
    """
    X = with_categories(data)
    numbers = [k for k in X.columns if k not in find_texts(data.X)]
    X[numbers] = X[numbers].astype(float)
    return X.fillna(X[numbers].iloc[data.train].mean().fillna(0).to_dict())


def name_missing(data: Split) -> Any:
    """Return the columns with texts, and a text for missing ones."""
    texts = find_texts(data.X)
    return data.X.assign(
        **{k: data.X[k].astype(object).fillna("missing").astype(str) for k in texts}
    )


PEERS: dict[
    str, tuple[Callable[[Split], Any], Callable[[Split], Any]]
] = {  # columns that it takes, fit
    "hgb": (with_categories, fit_hgb),
    "lgbm": (with_categories, fit_lgbm),
    "cat": (name_missing, fit_cat),
    "lr": (with_categories, fit_lr),
    "prior": (_take_columns, fit_prior),
    "realmlp": (fill_numbers, fit_realmlp),
    "autogluon": (_take_columns, fit_autogluon),
}
WITHOUT_WARM_UP = ("realmlp", "autogluon")


# ---------------------------------------------------------------- one fit
def find_losses(model: Any, data: Split) -> tuple[Array, float]:
    """Return the log loss of each test row, and the share of wrong labels."""
    P = np.full((len(data.test), data.n_classes), FLOOR)
    P[:, np.asarray(model.classes_, int)] = np.clip(
        model.predict_proba(data.X.iloc[data.test]), FLOOR, 1
    )
    y = data.y[data.test]
    loss = np.log(P.sum(1)) - np.log(P[np.arange(len(y)), y])
    return loss, float((P.argmax(1) != y).mean())


def make_toy() -> Split:
    """A table of a few rows, with numbers and texts."""
    import pandas as pd

    rng = np.random.default_rng(0)
    rows = 120
    number = rng.normal(size=rows)
    X = pd.DataFrame({"number": number, "text": rng.choice(list("abc"), rows)})
    return Split(
        X,
        (number > rng.normal(size=rows)).astype(np.int64),
        np.arange(100),
        np.arange(100, rows),
    )


def measure(method: str, data: Split) -> dict[str, Any]:
    """Fit a method and predict the test rows."""
    import sklearn.ensemble  # noqa: F401  a second of imports, which the toy table does not cause for every method

    ours = Ours(method) if method not in PEERS else None
    columns, fit = PEERS[method] if ours is None else (_take_columns, ours.fit)
    if method not in WITHOUT_WARM_UP:
        toy = make_toy()
        toy = toy._replace(X=columns(toy))
        find_losses(fit(toy), toy)
    if ours is None:  # LightGBM takes no name with special characters
        data = data._replace(
            X=data.X.set_axis([f"x{i}" for i in range(data.X.shape[1])], axis=1)
        )
    begun = time.process_time()
    data = data._replace(X=columns(data))
    model = fit(data)
    fitted = time.process_time()
    loss, error = find_losses(model, data)
    done = time.process_time()
    found = {
        "nll": float(loss.mean()),
        "se": float(loss.std() / np.sqrt(len(loss))),
        "error": error,
        "fit": round(fitted - begun, 3),
        "predict": round(done - fitted, 3),
        "losses": pack_losses(loss),
    }
    return found if ours is None else found | ours.describe(model)


def pack_losses(losses: Array) -> str:
    """Return losses as text: two bytes each, so that differences have three digits."""
    return base64.b85encode(losses.astype(np.float16).tobytes()).decode()


def unpack_losses(text: str) -> Array:
    """Return the losses of a record."""
    return np.frombuffer(base64.b85decode(text), np.float16).astype(np.float64)


def run_job(job: dict[str, Any]) -> dict[str, Any]:
    """Return the record of a job."""
    X, y = read_table(job["collection"], job["table"])
    most = job.get("train_rows") or (
        NUMERIC_ROWS if job["collection"] == "numeric" else 0
    )
    data = split_table(X, y, job["seed"], most, job.get("test_rows") or most)
    about = {
        "rows": len(data.train),
        "columns": X.shape[1],
        "classes": data.n_classes,
        "tested": len(data.test),
    }
    try:
        return about | measure(job["method"], data)
    except Exception as error:  # a fit that fails is a result, too
        return about | {"fail": f"{type(error).__name__}: {error}"[:300]}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print("\n" + json.dumps(run_job(json.loads(sys.argv[1]))))
