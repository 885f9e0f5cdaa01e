"""The checks written by hand, one module for each level."""
