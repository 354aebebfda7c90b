"""What tinyvit costs: time and memory, measured."""
