"""What can go wrong, in words that say what to try. All derive from ValueError."""


class CavityError(ValueError):
    """Base of every error that this library raises on purpose."""


class BadInput(CavityError):
    """The data cannot be used as they are."""


class BadOption(CavityError):
    """An argument has a value that has no meaning here."""


class NotPositiveDefinite(CavityError):
    """A covariance matrix could not be factorised, even after repairs."""


class BadFile(CavityError):
    """A file is missing, damaged, or of another kind."""


class MissingExtra(ModuleNotFoundError, BadOption):
    """An optional package is not installed."""


def missing_extra(package: str, extra: str) -> MissingExtra:
    """Make the error for an optional package that is not installed; the caller raises it.

    Parameters
    ----------
    package : str
        Name of the package that could not be imported.
    extra : str
        Extra of `cavity` that installs the package.

    Returns
    -------
    MissingExtra
        The error. It is a `BadOption` and a `ModuleNotFoundError`, and its message says how to install the package.

    Examples
    --------
    >>> from cavity.errors import missing_extra
    >>> print(missing_extra("matplotlib", "plot"))
    matplotlib is not installed: pip install "cavity[plot]"
    """
    return MissingExtra(f'{package} is not installed: pip install "cavity[{extra}]"', name=package)
