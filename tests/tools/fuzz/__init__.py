"""The fuzzer: random programs, run on the device and on the CPU side by side and compared bit
for bit after every line.

``python -m tests.tools.fuzz --help`` lists the options. ``grammar`` writes programs. ``programs`` runs them on both
devices and compares the results. ``worker`` does both in a process of its own. ``__main__`` shrinks a program whose
results differ, and prints it as a script.
"""
