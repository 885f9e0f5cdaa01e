import time


def _autoload():
    time.sleep(1e6)
