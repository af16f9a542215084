"""How many bits of a code are of which kind, unless asked otherwise; docs/research.md has why."""

from __future__ import annotations


def usual_content(n_bits: int) -> int:
    """Return how many of the bits of a code are content bits.

    Labels take the first 80 bits: below that every content bit costs label MAP. Beyond 192 bits
    every eighth bit is a label bit.

    >>> [usual_content(n_bits) for n_bits in (16, 64, 96, 128, 192, 256)]
    [0, 0, 16, 48, 112, 168]
    """
    return max(0, n_bits - 80 - 8 * max(0, (n_bits - 192) // 64))


def usual_owned(n_label: int, n_content: int = 0) -> int:
    """Return how many of the label bits are owned; the others are learned, or the doubt bit.

    Without content bits ``max(0, 3 (n_label - 48) // 5)``, which costs little Hamming MAP. Beside
    content bits seven of ten, so that learned bits keep Hamming distances useful. Where content
    bits are as many as label bits, they decide Hamming distances, and all but 9 label bits are
    owned.

    >>> [usual_owned(n_bits) for n_bits in (16, 32, 64, 128)]
    [0, 0, 9, 48]
    >>> [usual_owned(128 - n, n) for n in (8, 48, 64, 120)]
    [84, 56, 55, 0]
    """
    if not n_content:
        return max(0, 3 * (n_label - 48) // 5)
    return max(0, n_label - 9) if n_content >= n_label else 7 * n_label // 10
