def _autoload():
    from torch_undefined import _C

    return _C
