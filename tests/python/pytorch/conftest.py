"""For all tests of the PyTorch hook."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tensortap._hook import _open_hooks


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Sums in one order, so that two trainings are the same to the bit; and no threads that spin for tiny models."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def closed_hooks() -> Iterator[None]:
    """What a test leaves open is closed with it: the garbage collector would do that in the midst of another test."""
    yield
    for hook in list(_open_hooks):
        hook.close()
