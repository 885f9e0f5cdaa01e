"""Prints bytes that are no text, and closes its outputs. Some lines look like the records that the doctor reads."""

import os


def _autoload():
    for output in (1, 2):
        os.write(output, b'\x00\xff\x1b[31m\n{"step": "end", "privateuse1": "garbage"}\n' * 20_000)
        os.close(output)
