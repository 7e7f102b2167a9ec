"""Arguments, read before any row: one frozen configuration, and methods as objects.

`training` does without torch.
"""

from cavity.fitting.options.training import flatten as flatten
from cavity.fitting.options.training import nest as nest
from cavity.fitting.options.training import read_training as read_training
