"""``torch-openreg check``: runs a program with every instrument, and says what is wrong with it.

``_processes`` runs the program; ``_server`` and ``_zygote`` start it. ``_recorder`` works within the program. ``_plan``
says which runs there are, ``_judge`` what a run has shown, ``_session`` does both, and ``_reports`` writes what was
found.
"""
