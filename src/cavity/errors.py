"""Errors and a warning. All errors derive from ValueError, and their messages say what to try."""


class CavityError(ValueError):
    """Base class of the errors of this library."""


class BadInput(CavityError):
    """The data cannot be used."""


class BadOption(CavityError):
    """An argument has a value that is not allowed."""


class NotPositiveDefinite(CavityError):
    """A covariance matrix could not be factorised, even with more jitter."""


class BadFile(CavityError):
    """A file is missing, damaged, or of another kind."""


class LostRank(CavityError, RuntimeError):
    """A rank of a distributed run does not answer."""


class MissingExtra(ModuleNotFoundError, BadOption):
    """An optional package is not installed."""


def missing_extra(package: str, extra: str) -> MissingExtra:
    """Return the error for an optional package that is not installed; its message names the extra that installs it."""
    return MissingExtra(f'{package} is not installed: pip install "cavity[{extra}]"', name=package)
