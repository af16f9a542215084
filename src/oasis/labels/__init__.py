"""What class names mean: a growing space of label vectors, and the sources of its words."""

from oasis.labels.space import DEFAULT_AXES, LabelSpace

__all__ = ["DEFAULT_AXES", "LabelSpace"]
