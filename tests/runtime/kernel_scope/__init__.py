"""Checks that every kernel passes through a kernel scope: `python -m tests.runtime.kernel_scope --mode async`.

A kernel that enters the kernel scope is ordered with the work of its stream, and profilers and sanitizers see it.
"""
