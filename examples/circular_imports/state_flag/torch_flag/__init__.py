"""Imports no torch: only the entry point, and the flag that tells whether somebody else imports the backend already."""

is_loaded = False


def _autoload():
    if not is_loaded:
        import torch_flag.backend  # noqa: F401
