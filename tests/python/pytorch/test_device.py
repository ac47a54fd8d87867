"""Statistics computed with PyTorch's operations, as for tensors on a GPU, against the engine's own: here on the CPU."""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from oracle import fit, train_twice
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import tensortap as tt
import tensortap.pytorch as smd
from tensortap import _core
from tensortap.pytorch import device, device_slabs, graphs, tensors
from tensortap.pytorch.device import DeviceCollector
from tensortap.pytorch.device_statistics import Block, Thresholds, work_format

FLOATS = [
    *("float64", "float32", "float16", "bfloat16"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
]
COMPLEX = ["complex64", "complex128"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]
SPECIAL = [0.0, -0.0, 1.0, -1.0, 1.5, 5e-324, -1e-310, 1e-45, -1e-40, 6e-8, 2.0**-25, 2.0**-24]
SPECIAL += [65504.0, 65519.0, 65520.0, -1e30, 3.4e38, 1e-300, -1.7e308, 1.7e308]
SPECIAL += [math.nan, math.inf, -math.inf]


@pytest.fixture(autouse=True)
def forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "_forces_device", True)


class Pair:
    """A session in which a tensor is recorded twice: by PyTorch at step 0, by the engine at step 1."""

    def __init__(self, out_dir: Path, **options: object) -> None:
        options.setdefault("reduction_config", tt.ReductionConfig(save_raw_tensor=True))
        self.session = _core.Session(
            str(out_dir),
            collections=_core.CollectionSet(),
            save_config=tt.SaveConfig(save_interval=1),
            save_all=True,
            **options,
        )
        self.lost: set[int] = set()
        self.lost_id = self.session.intern("lost")
        self.collector = DeviceCollector(self.session, self.lost)
        self.out_dir = out_dir

    def begin(self) -> None:
        self.session.begin_step()

    def item(self, name: str, tensor: torch.Tensor) -> tensors.Item:
        item = tensors.make_item(self.session.intern(name), tensor, [])
        assert isinstance(item, tensors.DeviceItem)
        return item

    def record(self, **named: torch.Tensor) -> None:
        self.collector.record_batch([self.item(name, tensor) for name, tensor in named.items()])

    def end(self) -> None:
        self.collector.end_step()

    def record_on_host(self, **named: torch.Tensor) -> None:
        self.begin()
        for name, tensor in named.items():
            keep_alive: list[torch.Tensor] = []
            item = tensors.make_host_item(self.session.intern(name), tensor, keep_alive)
            assert item is not None
            self.session.record_batch([item])
        self.session.end_step()

    def close(self) -> tt.Trial:
        self.collector.settle()
        self.session.close()
        return tt.create_trial(self.out_dir)


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path / "run")


def assert_agree(pair: Pair, **named: torch.Tensor) -> None:
    pair.begin()
    pair.record(**named)
    pair.end()
    pair.record_on_host(**named)
    trial = pair.close()
    for name in named:
        tensor = trial.tensor(name)
        assert_same(tensor.statistics(0), tensor.statistics(1), name)
        raw, want = tensor.value(0), tensor.value(1)
        assert raw.dtype == want.dtype
        np.testing.assert_array_equal(raw, want, err_msg=name)


def assert_same(got: _core.Statistics, want: _core.Statistics, what: str) -> None:
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    scale = want.abs_max if math.isfinite(want.abs_max) else 0.0
    slack = {"mean": 1e-14 * scale, "abs_mean": 1e-14 * scale}
    slack["variance"] = slack["abs_variance"] = 1e-13 * min(scale, 1e150) ** 2
    for row in _core.statistic_table():
        if not row["is_stored"]:
            continue
        name = row["name"]
        if row["is_count"]:
            close = want[name]
        elif name in slack:
            close = pytest.approx(want[name], rel=1e-12, abs=slack[name], nan_ok=True)
        else:  # minima and maxima; magnitudes of complex numbers are rounded
            rounding = 1e-15 if want.dtype.startswith("complex") else 0.0
            close = pytest.approx(want[name], rel=rounding, abs=0.0, nan_ok=True)
        assert got[name] == close, f"{what}: {name}"
    assert got.has_histogram == want.has_histogram
    if want.histogram is not None:
        assert got.histogram is not None
        np.testing.assert_array_equal(got.histogram[1], want.histogram[1], err_msg=what)
        np.testing.assert_array_equal(got.histogram[0], want.histogram[0], err_msg=what)


def numbers(dtype: str, count: int) -> torch.Tensor:
    """Numbers of many magnitudes, with the awkward ones among them where a dtype has them."""
    kind = getattr(torch, dtype)
    generator = torch.Generator().manual_seed(count)
    wide = torch.randn(count, generator=generator, dtype=torch.float64)
    wide *= 2.0 ** torch.randint(-30, 12, (count,), generator=generator)
    if kind.is_floating_point:
        wide[: len(SPECIAL)] = torch.tensor(SPECIAL, dtype=torch.float64)[:count]
        return wide.to(kind)
    if kind.is_complex:
        real = wide.clone()
        real[: len(SPECIAL)] = torch.tensor(SPECIAL, dtype=torch.float64)[:count]
        return torch.complex(real, wide.flip(0)).to(kind)
    if kind is torch.bool:
        return wide > 0
    limits = torch.iinfo(kind)
    span = min(limits.max, 2**40)
    result = torch.randint(max(limits.min, -span), span, (count,), generator=generator)
    result[:3] = torch.tensor([0, 1, max(limits.min, -span)])
    return result.to(kind)


@pytest.mark.parametrize("dtype", [*FLOATS, *COMPLEX, *INTEGERS])
def test_every_dtype(pair: Pair, dtype: str) -> None:
    many = numbers(dtype, 9000)
    assert_agree(
        pair,
        many=many,
        few=many[:37],
        transposed=many[:600].view(20, 30).t(),
        strided=many[1:900:7],
        scalar=many[2],
        empty=many[:0].view(0, 4),
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_do_not_cancel(pair: Pair, dtype: str) -> None:
    kind = getattr(torch, dtype)
    generator = torch.Generator().manual_seed(1)
    far = (torch.randn(5000, generator=generator, dtype=torch.float64) + 1e7).to(kind)
    assert_agree(
        pair,
        far=far,
        constant=torch.full((5000,), 0.1, dtype=kind),
        tiny=torch.full((300,), 1e-40, dtype=kind),
        nothing_finite=torch.full((300,), math.inf, dtype=kind),
        zeros=torch.zeros(300, dtype=kind),
    )


def test_sums_beyond_float64(pair: Pair) -> None:
    assert_agree(pair, x=torch.full((600,), 1.7e308, dtype=torch.float64))


def test_large_tensors_go_over_several_slabs(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_slabs, "SLAB_ELEMENTS", 1 << 13)
    monkeypatch.setattr(device, "_ROW_LENGTHS", ((1 << 12, 1 << 10), (0, 1 << 6)))
    generator = torch.Generator().manual_seed(2)
    large = torch.randn(3, 50, 200, generator=generator)
    assert_agree(
        pair,
        large=large,
        images=large.view(30, 10, 10, 10).contiguous(memory_format=torch.channels_last),
        exact=large.view(-1)[: 1 << 13],
        **{f"small{i}": large[0, i] for i in range(50)},
    )


def test_views_that_are_more_than_memory(pair: Pair) -> None:
    base = torch.randn(5, generator=torch.Generator().manual_seed(3))
    assert_agree(
        pair,
        expanded=base.expand(40, 5),
        overlapping=base.as_strided((4, 2), (1, 1)),
        conjugate=torch.complex(base, -base).conj(),
        negative=torch.complex(base, -base).conj().imag,
        sparse=torch.diag(base).to_sparse(),
    )


def test_what_is_read_is_what_was_there(pair: Pair) -> None:
    x = torch.arange(1000.0)
    want = x.clone()
    pair.begin()
    pair.record(x=x)
    x.zero_()  # later work of the same stream
    pair.end()
    pair.record_on_host(x=want)
    tensor = pair.close().tensor("x")
    assert_same(tensor.statistics(0), tensor.statistics(1), "x")
    np.testing.assert_array_equal(tensor.value(0), want.numpy())


def test_the_last_record_of_a_step_counts(pair: Pair) -> None:
    pair.begin()
    pair.record(x=torch.ones(4))
    pair.record(x=torch.full((2, 2), 5.0))
    pair.end()
    tensor = pair.close().tensor("x")
    assert tensor.statistics(0).mean == 5.0
    assert tensor.shape(0) == (2, 2)


def test_one_memory_under_two_names(pair: Pair) -> None:
    pair.begin()
    pair.record(x=torch.ones(4))
    session = pair.session
    assert pair.collector.record_same(session.intern("y"), session.intern("x"))
    assert not pair.collector.record_same(session.intern("z"), session.intern("w"))
    pair.end()
    trial = pair.close()
    assert trial.tensor("y").statistics(0).mean == 1.0
    np.testing.assert_array_equal(trial.tensor("y").value(0), np.ones(4, dtype=np.float32))
    assert "z" not in trial.tensor_names()


def test_without_raw_values(tmp_path: Path) -> None:
    pair = Pair(tmp_path / "run", reduction_config=tt.ReductionConfig())
    pair.begin()
    pair.record(x=torch.ones(4), one=torch.tensor(3.5))
    pair.end()
    trial = pair.close()
    assert trial.tensor("x").statistics(0).count == 4
    with pytest.raises(tt.exceptions.TensorUnavailableForStep):
        trial.tensor("x").value(0)
    assert trial.tensor("one").value(0) == 3.5


def test_recorded_in_inference_mode_and_finished_outside(pair: Pair) -> None:
    pair.begin()
    with torch.inference_mode():
        pair.record(x=torch.ones(4))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        pair.record(y=torch.ones(300, requires_grad=True))
    pair.end()
    trial = pair.close()
    assert trial.tensor("x").statistics(0).mean == trial.tensor("y").statistics(0).mean == 1.0


class Seen(TorchDispatchMode):
    """Counts the operations that go by."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_a_users_dispatch_mode_sees_nothing(pair: Pair) -> None:
    pair.begin()
    item = pair.item("x", torch.ones(4))
    with Seen() as seen:
        pair.collector.record_batch([item])
        pair.end()
    assert seen.count == 0


def not_ready(self: object) -> bool:
    return False


def test_steps_wait_for_their_device_and_stay_in_order(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device._WaitingStep, "is_ready", not_ready)
    counters = pair.session.counters
    for step in range(5):
        pair.begin()
        pair.record(x=torch.tensor(float(step)))
        pair.session.record_scalar("scalar/s", step)
        pair.end()
        pair.session.flush(5.0)
        assert counters()["written_steps"] == max(0, step - 1)  # two may wait
    trial = pair.close()
    assert trial.steps() == [0, 1, 2, 3, 4]
    assert trial.tensor("x").column("mean")[1].tolist() == [0, 1, 2, 3, 4]
    assert trial.tensor("scalar/s").column("mean")[1].tolist() == [0, 1, 2, 3, 4]


class FakeEvent:
    def __init__(self) -> None:
        self.is_done = False

    def query(self) -> bool:
        return self.is_done

    def synchronize(self) -> None:
        self.is_done = True


class FakeStream:
    """What the collector asks of a stream."""

    def __init__(self, stream_id: int) -> None:
        self.stream_id = stream_id
        self.entered = 0
        self.events: list[FakeEvent] = []

    def record_event(self) -> FakeEvent:
        self.events.append(FakeEvent())
        return self.events[-1]

    def __enter__(self) -> None:
        self.entered += 1

    def __exit__(self, *exception: object) -> None:
        pass


def test_every_stream_has_its_slabs_and_its_event(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = [FakeStream(1), FakeStream(2)]
    current = streams[0]
    monkeypatch.setattr(device, "_stream_for", lambda tensor: current)
    monkeypatch.setattr(device_slabs, "in_stream", lambda device, stream: stream)
    pair.begin()
    pair.record(a=torch.ones(4), b=torch.zeros(4))
    current = streams[1]
    pair.record(c=torch.full((4,), 3.0))
    pair.end()
    assert [stream.entered for stream in streams] == [1, 1]
    assert [len(stream.events) for stream in streams] == [1, 1]
    streams[1].events[0].is_done = True
    pair.begin()
    pair.end()
    assert pair.session.counters()["written_steps"] == 0  # the first stream is not done
    streams[0].events[0].is_done = True
    pair.begin()
    pair.end()
    trial = pair.close()
    assert trial.steps() == [0]
    assert [trial.tensor(name).statistics(0).mean for name in "abc"] == [1.0, 0.0, 3.0]


def test_rules_see_a_step_when_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device._WaitingStep, "is_ready", not_ready)
    rule = ("ExplodingTensor", {"only_nan": "True"}, ["stop_training"])
    pair = Pair(tmp_path / "run", rules=[rule])
    pair.begin()
    pair.record(x=torch.tensor([1.0, math.nan]))
    pair.end()
    assert pair.session.stop_reason is not None
    assert pair.session.stop_reason.step == 0
    pair.close()


def no_memory(*args: object) -> None:
    raise torch.OutOfMemoryError("out of memory")


@pytest.mark.parametrize("where", ["copying", "computing"])
def test_no_memory_on_the_device(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    target, name = (torch, "_foreach_copy_") if where == "copying" else (Block, "statistics")
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(target, name, no_memory)
            pair.begin()
            pair.record(lost=torch.ones(4))
            pair.session.record_scalar("scalar/s", 1.0)
            pair.end()
    pair.begin()
    pair.record(x=torch.ones(4))
    pair.end()
    trial = pair.close()
    assert trial.tensor("scalar/s").steps() == [0, 1]
    assert trial.tensor("x").steps() == [2]
    assert "lost" not in trial.tensor_names()
    assert pair.lost == {pair.lost_id}
    assert [r.getMessage() for r in caplog.records] == [
        "tensors on a device were not recorded: out of memory"
    ]


def test_a_failing_device_does_not_hold_a_step_back(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device._WaitingStep, "results", no_memory)
    pair.begin()
    pair.record(x=torch.ones(4))
    pair.session.record_scalar("scalar/s", 1.0)
    with pytest.raises(torch.OutOfMemoryError):
        pair.end()
    assert pair.close().tensor("scalar/s").steps() == [0]


def test_steps_aside_while_a_graph_is_captured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = nn.Linear(4, 2)
    with tt.watch(model, out_dir=tmp_path / "run", collections=["all"], strict=True) as hook:
        fit(model, 2)
        with monkeypatch.context() as patch:
            patch.setattr(graphs, "is_capturing", lambda: True)
            fit(model, 2)
        fit(model, 2)
        assert hook.is_active
    trial = tt.create_trial(hook.out_dir)
    # What was called while capturing was no step.
    assert trial.tensor("Linear_output_0").steps() == [0, 1, 2, 3]
    assert trial.tensor("gradient/Linear_weight").steps() == [0, 1, 2, 3]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "CUDA graph is being captured" in caplog.text


def test_a_tensor_of_a_device_is_left_out_while_a_graph_is_captured(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class OnCuda(torch.Tensor):
        is_cuda = True

    monkeypatch.setattr(tensors, "_PLAIN_TYPES", {torch.Tensor, OnCuda})
    pair.begin()
    item = tensors.DeviceItem(pair.lost_id, torch.ones(4).as_subclass(OnCuda))
    with monkeypatch.context() as patch:
        patch.setattr(device, "is_capturing", lambda: True)
        patch.setattr(tensors, "is_capturing", lambda: True)
        pair.collector.record_batch([item])
        assert tensors.make_host_item(0, item.tensor, []) is None
    pair.record(y=torch.ones(4))
    pair.end()
    assert pair.close().tensor_names() == ["y"]
    assert pair.lost == {pair.lost_id}
    assert len(caplog.records) == 1


@pytest.mark.parametrize("make", [torch.empty, torch.ones])
def test_tensors_without_memory_are_left_out(make: Callable[..., torch.Tensor]) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    assert tensors.make_item(0, make(3, device="meta"), []) is None
    with FakeTensorMode():
        fake = make(3)
    assert tensors.make_item(0, fake, []) is None
    seen: list[tensors.Item | None] = []
    torch.vmap(lambda x: (seen.append(tensors.make_item(0, x, [])), x)[1])(make(3, 2))
    assert seen == [None]


class Mixed(nn.Module):
    """Convolution, tables, normalization, attention: what tensors of a training look like."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.table = nn.Embedding(11, 8)
        self.norm = nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, images: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        seen = torch.relu(self.conv(images)).mean((2, 3)).unsqueeze(1)
        read = self.norm(self.table(words) + seen)
        return self.head(self.attention(read, read, read)[0]).mean(1)


def train_mixed(model: nn.Module, hook: smd.Hook | None) -> list[torch.Tensor]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(4):
        if hook is not None:
            hook.set_mode(smd.modes.TRAIN if step < 3 else smd.modes.EVAL)
        images = torch.randn(4, 3, 9, 9).to(memory_format=torch.channels_last)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=step == 1):
            output = model(images, torch.randint(0, 11, (4, 5)))
        loss = output.float().pow(2).mean()
        if hook is not None:
            hook.record_tensor_value("loss", loss)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        losses.append(loss.detach())
    return losses


def test_a_training_is_recorded_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ["all", "optimizer_variables", "gradients_before_clipping", "update_ratios"]
    arguments = {
        "include_collections": asked,
        "reduction_config": tt.ReductionConfig(save_raw_tensor=True),
    }
    forced = train_twice(tmp_path / "forced", Mixed, train_mixed, **arguments).trial
    monkeypatch.setattr(tensors, "_forces_device", False)
    usual = train_twice(tmp_path / "usual", Mixed, train_mixed, **arguments).trial
    names = usual.tensor_names()
    assert forced.tensor_names() == names
    assert len(names) > 80
    for name in set(names) - {"step_time", "data_time"}:
        one, other = forced.tensor(name), usual.tensor(name)
        assert one.steps() == other.steps()
        for step in one.steps():
            assert_same(one.statistics(step), other.statistics(step), name)
            np.testing.assert_array_equal(one.value(step), other.value(step), err_msg=name)


def test_a_rule_stops_in_the_step_of_its_finding(tmp_path: Path) -> None:
    model = nn.Linear(4, 2)
    rules = ["ExplodingTensor:actions=stop_training"]
    seen = []

    def explode(step: int) -> None:
        seen.append(step)
        if step == 5:
            model.weight.grad.fill_(math.inf)

    with tt.watch(model, out_dir=tmp_path / "run", rules=rules) as hook:
        with pytest.raises(tt.StopTraining) as stop:
            fit(model, 9, before_step=explode)
        assert stop.value.finding.step == 5
        assert hook.step == 5
    assert seen == [*range(6)]


def test_what_waits_is_there_after_flush_and_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device._WaitingStep, "is_ready", not_ready)
    model = nn.Linear(4, 2)
    hook = tt.watch(model, out_dir=tmp_path / "run")
    fit(model, 4)
    assert hook.flush()
    assert tt.create_trial(hook.out_dir).tensor("Linear_weight").steps() == [0, 1, 2, 3]
    fit(model, 2)
    hook.close()
    assert tt.create_trial(hook.out_dir).tensor("gradient/Linear_weight").steps() == [*range(6)]


def test_save_tensor_of_any_device(tmp_path: Path) -> None:
    model = nn.Linear(4, 2)
    with tt.watch(model, out_dir=tmp_path / "run") as hook:
        hook.save_tensor("mine", torch.arange(3.0))
        fit(model, 1)
    assert tt.create_trial(hook.out_dir).tensor("mine").value(0).tolist() == [0.0, 1.0, 2.0]


def test_float32_is_enough_where_there_is_nothing_better() -> None:
    x = torch.randn(1 << 16, generator=torch.Generator().manual_seed(4))
    block = Block(x.view(1 << 8, -1), work_format(x.dtype))
    thresholds = Thresholds.of(x.dtype)
    exact = block.statistics(thresholds, torch.float64)
    rough = block.statistics(thresholds, torch.float32)
    torch.testing.assert_close(rough.double(), exact, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(rough.double()[:, :11], exact[:, :11], rtol=0, atol=0)


def test_the_environment_forces_it() -> None:
    script = "from tensortap.pytorch import tensors; print(tensors._forces_device)"
    command = [sys.executable, "-c", script]
    environment = {**os.environ, "TENSORTAP_DEVICE_STATISTICS": "1"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "True"
