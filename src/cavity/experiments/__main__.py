"""`python -m cavity.experiments`: needs neither typer nor matplotlib."""

import sys

from cavity.experiments.commands import main

if __name__ == "__main__":
    sys.exit(main())
