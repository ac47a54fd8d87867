"""Which of several processes this one is, by the variables that launchers set."""

from __future__ import annotations

import os

# (rank, number of processes). The first pair that is set counts: torchrun within a Slurm task knows better.
_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


def launched_rank() -> int:
    """Rank of this process among those that a launcher has started; 0 without one."""
    for rank, size in _VARIABLES:
        try:
            if int(os.environ[size]) > 1:
                return int(os.environ[rank])
        except (KeyError, ValueError):
            continue
    return 0
