"""Checks that every kernel passes the door of runtime/OpenRegKernel.h: `python -m tests.door --mode async`.

A kernel that passes the door is ordered with the work of its stream, and profilers and sanitizers see it.
"""
