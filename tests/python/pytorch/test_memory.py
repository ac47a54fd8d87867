"""A long training with a hook needs no more memory than a short one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[1]  # where trainings.py is

TRAINING = """
import gc, os, sys
sys.path.insert(0, {here!r})
import torch
import tensortap.pytorch as smd
from trainings import mlp

def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

torch.set_num_threads(1)
model = mlp(4, 4, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
hook = smd.Hook({run!r}, save_all=True, reduction_config=smd.ReductionConfig(),
                save_config=smd.SaveConfig(save_interval={interval}))
hook.register_module(model)
inputs = torch.randn(4, 4)
for step in range(11000):
    optimizer.zero_grad()
    model(inputs).pow(2).mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step == 1000:
        before = resident()
print(resident() - before)
hook.close()
assert hook.fault_count == 0
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux's /proc")
@pytest.mark.parametrize("interval", [1, 1000000])
def test_ten_thousand_steps_leave_memory_as_it_is(tmp_path: Path, interval: int) -> None:
    script = TRAINING.format(here=str(HERE), run=str(tmp_path / "run"), interval=interval)
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert abs(int(result.stdout)) <= 2 << 20
