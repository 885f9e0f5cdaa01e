"""The sweep runs the entries of PyTorch's own test databases on the device and on the CPU, and compares the results.

``python -m tests.sweep --help`` says what can be selected. ``runner`` drives worker processes and attributes crashes,
``worker`` runs cases one at a time, ``checks`` says what a case computes, ``report`` counts and prints.
"""
