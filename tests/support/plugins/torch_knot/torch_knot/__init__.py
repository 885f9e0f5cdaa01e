"""Imports the module of its operators, which imports this package."""

from torch_knot import ops

REGISTRY = {}


def _autoload():
    return ops
