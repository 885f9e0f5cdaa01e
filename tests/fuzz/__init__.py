"""The fuzzer: random programs, run on the device and on the CPU side by side and compared bit
for bit after every line.

``python -m tests.fuzz --help`` says what can be chosen. ``grammar`` writes programs, ``programs`` runs and compares
them,
``worker`` does so in a process of its own, and ``__main__`` shrinks what differs to a script.
"""
