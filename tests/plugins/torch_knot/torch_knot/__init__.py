"""Needs its operators, which need it."""

from torch_knot import ops

REGISTRY = {}


def _autoload():
    return ops
