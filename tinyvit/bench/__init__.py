"""The same work timed side by side: tinyvit at each level of its kernels, and PyTorch if it is installed.

    cases.py        what is computed: named models and batches, and how many multiply-adds that takes
    steps.py        one step of a case in tinyvit; torch_vit.py and torch_steps.py: the same in PyTorch
    products.py     matrix products alone, for the best rate that this machine reaches
    worker.py       a process that computes one of these on command; processes.py sends the commands
    turns.py        workers that take turns, so that the noise of a shared machine affects all alike
    figures.py      medians, quartiles, ratios, the lower bound by matrix products
    run.py          from options to results; table.py: the results as text; scaling.py: how cost grows, as a picture

Only the files whose names begin with `torch_` import PyTorch, and only workers import those.
"""

from tinyvit.bench.cases import CASES, AttentionCase, ConvCase, ModelCase, case_named
