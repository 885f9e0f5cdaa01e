"""What a backend can do with only the minimal set of operators, and what breaks when one of them is taken out."""
