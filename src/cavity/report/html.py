"""HTML report on a fitted model: one self-contained page without network access."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from cavity.common.files import write_bytes
from cavity.common.lazy import resolve
from cavity.errors import BadInput
from cavity.report import sections
from cavity.report.findings import Model, find
from cavity.report.headline import find_lead
from cavity.report.scores import FEW_ROWS
from cavity.report.templates import render_report


def write_report(
    model: Model,
    path: str | Path,
    X: Any = None,
    y: Any = None,
    *,
    title: str = "",
    row_numbers: Any = None,
    note: str = "",
    training_rows: bool = False,
) -> Path:
    """Write an HTML report on a fitted classifier or regressor.

    With rows X, it says what matters, how predictions depend on the most important columns, which rows are uncertain, and what
    the cells are like. With y, it begins with how good the model is against a baseline and where it fails. Without rows, it has
    what the model knows about itself. The page needs no network.

    Parameters
    ----------
    model : GPClassifier or GPRegressor
        Fitted model.
    path : str or Path
        File to write.
    X : array-like of shape (n, D), or a frame, optional
        Rows to predict, raw cells as they are. For unbiased scores, give rows that were not used for training.
    y : array-like of shape (n,), optional
        Labels or targets of the rows.
    title : str, optional
        Title of the page.
    row_numbers : sequence of int, optional
        What the page calls the rows, by default their numbers from 0.
    note : str, optional
        A remark for the headline, such as where the rows come from.
    training_rows : bool, optional
        Whether the model was trained on these rows. The headline then says that scores are too good, gives the estimate for new
        rows, and does not judge the probabilities, which are calibrated for new rows.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklearn.datasets import load_iris
    >>> from cavity import GPClassifier, Training, report
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = GPClassifier("sep", n_inducing=5, training=Training(tol=1.0), random_state=0).fit(X[::2], y[::2])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = report.write_report(clf, Path(folder) / "report.html", X[1::2], y[1::2])
    ...     path.name
    'report.html'
    """
    check_is_fitted(model, "inducing_points_")
    if X is None and y is not None:
        raise BadInput("labels y were given without rows X: give both or neither.")
    found = find(model, X, y)
    plan = resolve(found.fit.plan)  # files of other versions have none
    page = render_report(
        found=found,
        title=title or f"Report on a model of {found.target}",
        note=note,
        seen=training_rows,
        lead=find_lead(found),
        notes=getattr(model, "notes_", {}),
        estimate=getattr(model, "estimate_", None),
        warnings=model.fit_warnings_,
        classes=sections.describe_classes(found),
        few_rows=FEW_ROWS,
        trust=sections.draw_trust(found),
        dependences=sections.draw_dependences(found),
        rows=sections.list_rows(found, row_numbers),
        quality=sections.describe_data(found),
        plan=None if plan is None else plan.choices,
        facts=sections.describe_model(model),
    )
    write_bytes(path, page.encode())
    return Path(path)
