"""The sweep: what ships inside PyTorch's own test databases, run on the device and on the CPU and compared.

``python -m tests.sweep --help`` says what can be selected. ``runner`` drives worker processes and attributes crashes,
``worker`` runs cases one at a time, ``checks`` says what a case computes, ``report`` counts and prints.
"""
