"""``python -m oasis``: the command line."""

from oasis.cli import main

if __name__ == "__main__":
    main()
