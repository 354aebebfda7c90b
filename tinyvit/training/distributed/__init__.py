"""Several processes that train one model: MPI on CPUs, NCCL between GPUs."""

from tinyvit.training.distributed.ranks import ALONE, launched, sharing
