"""Vectors of class names: a space that grows as classes arrive, and the sources of its words."""

from oasis.labels.space import DEFAULT_AXES, LabelSpace

__all__ = ["DEFAULT_AXES", "LabelSpace"]
