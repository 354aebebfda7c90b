"""Benchmarks: tinyvit at each level of its kernels and, if it is installed, PyTorch, timed side by side.

    cases.py        what is computed: named models and batches, and how many multiply-adds that takes
    steps.py        one step of a case in tinyvit; torch_steps.py: the same in PyTorch, whose models are timm's
    run.py          starts a process for each contestant, and makes results of cases; worker.py: what a process computes
    table.py        results as text; scaling.py: how cost grows, as a picture

Times are compared within one run only: the contestants take turns, each in a process of its own, so that the noise of
a shared machine affects all alike. Only torch_steps.py imports PyTorch, and only workers import that.
"""
