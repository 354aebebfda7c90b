"""A report on tinyvit on a GPU, in ten minutes: `python -m tinyvit.bench.gpu_report`.

Needs nothing but tinyvit, NumPy and CuPy; pytest for the tests, and PyTorch for the comparison with it.
"""
