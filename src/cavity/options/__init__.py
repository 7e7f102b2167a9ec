"""Arguments, read before any row: one frozen configuration, and methods as objects. `training` does without torch."""

from cavity.options.training import flatten as flatten
from cavity.options.training import nest as nest
from cavity.options.training import read_training as read_training
