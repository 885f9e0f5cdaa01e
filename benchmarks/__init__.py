"""`python -m benchmarks` (or `make bench`) compares the device with the CPU device, whose kernels the device runs.

The benchmark measures and does not judge: a missed target is marked, and the exit status stays 0.
"""
