"""This module does not import torch. It has the entry point, and a flag: the backend is being imported already."""

is_loaded = False


def _autoload():
    if not is_loaded:
        import torch_flag.backend  # noqa: F401
