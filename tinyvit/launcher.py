"""Reads this process's rank from the environment that `mpiexec` or `srun` sets. MPI isn't loaded for that."""

import os

# (rank, number of ranks) as Open MPI, MPICH and all that speak its PMI, and Slurm name them. Of Slurm's only those of a
# job step: in a batch script SLURM_PROCID is 0, too, and nothing has been started in parallel.
RANK_VARIABLES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)


def rank_and_size():
    """(rank, number of ranks) where a launcher has started several processes, else (0, 1)."""
    for rank, size in RANK_VARIABLES:
        found = os.environ.get(rank, ""), os.environ.get(size, "")
        if all(text.isdecimal() for text in found) and int(found[1]) > 1:
            return int(found[0]), int(found[1])
    return 0, 1
