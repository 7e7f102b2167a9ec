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
