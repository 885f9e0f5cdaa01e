"""The entry point, in a module of its own: complete before anything that needs torch is imported."""


def _autoload():
    # Half imported, if it is what imported torch: it is in sys.modules then, and completes when torch is there.
    import torch_door  # noqa: F401
