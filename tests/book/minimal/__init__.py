"""Tries out what a backend can do with the minimal set of operators, and what breaks without one of them."""
