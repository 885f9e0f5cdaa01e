import os


def _autoload():
    os._exit(0)
