"""The entry point in a separate module, which is complete before anything that needs torch is imported."""


def _autoload():
    # If a program imports torch_door first, torch_door is half imported here and waits for torch. This import then only
    # finds it in sys.modules, and torch_door completes after torch.
    import torch_door  # noqa: F401
