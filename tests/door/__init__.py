"""Checks that every operator passes the device's one door to kernels: `python -m tests.door --mode async`."""
