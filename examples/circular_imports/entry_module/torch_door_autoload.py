"""The entry point in a separate module, which is complete before anything that needs torch is imported."""


def _autoload():
    # torch_door may be half imported, if it has imported torch. It is then in sys.modules, and completes after torch.
    import torch_door  # noqa: F401
