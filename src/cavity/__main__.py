"""`python -m cavity`."""

from cavity.cli import main

if __name__ == "__main__":
    main()
