"""``oasis demo``."""

from __future__ import annotations


def demo() -> None:
    """Run a stream of icons through the model and print how well it searches, round by round."""
    from oasis.demo import run

    run()
