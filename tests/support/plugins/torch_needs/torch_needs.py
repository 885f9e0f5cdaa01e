def _autoload():
    import torch_needs_this

    return torch_needs_this
