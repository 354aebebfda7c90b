"""Kernels compiled by numba (the extra `fast`): one pass over the data each. Importing this registers them."""
