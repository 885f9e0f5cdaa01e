"""This module does not import torch. It has the entry point, and a flag: whether the backend's import has begun."""

is_loaded = False


def _autoload():
    if not is_loaded:
        import torch_flag.backend  # noqa: F401
