"""What a trial answers about runs made with known arrays."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from run_maker import RunMaker, record_array

import tensortap as tt
from tensortap import _core, modes
from tensortap.exceptions import (
    InvalidArgumentError,
    InvalidWorker,
    NoMoreData,
    RunNotFoundError,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailable,
    TensorUnavailableForStep,
    UnavailableError,
)
from tensortap.trial import StepState


def gradient(step: int) -> np.ndarray:
    return np.random.default_rng(step).standard_normal((3, 4)).astype(np.float32)


def tensors(step: int) -> dict[str, np.ndarray]:
    return {
        "gradient/fc.weight": gradient(step),
        "fc.weight": np.full((2, 2), step, np.float64),
        "loss_output_0": np.array(10.0 - step, np.float32),
    }


@pytest.fixture
def trial(runs: RunMaker) -> tt.Trial:
    return tt.create_trial(path=runs.make(5, tensors))


def test_names_by_regex_collection_step_and_mode(trial: tt.Trial) -> None:
    assert trial.tensor_names() == ["fc.weight", "gradient/fc.weight", "loss_output_0"]
    assert trial.tensor_names(regex="weight$") == ["fc.weight", "gradient/fc.weight"]
    assert trial.tensor_names(regex=["^fc", "loss"]) == ["fc.weight", "loss_output_0"]
    assert trial.tensor_names(collection="gradients") == ["gradient/fc.weight"]
    assert trial.tensor_names(collection=tt.Collection("c", [r"(?<=out)put"])) == ["loss_output_0"]
    assert trial.tensor_names(collection="nothing of that name") == []
    assert trial.tensor_names(mode=modes.EVAL) == []
    assert len(trial.tensor_names(step=3, mode=modes.TRAIN)) == 3
    assert trial.tensor_names(step=99) == []
    with pytest.raises(ValueError, match="not both"):
        trial.tensor_names(regex="a", collection="b")
    with pytest.raises(InvalidArgumentError, match=r"\(unclosed"):
        trial.tensor_names(regex="(unclosed")


def test_values_come_back_bit_for_bit(trial: tt.Trial) -> None:
    t = trial.tensor("gradient/fc.weight")
    assert t.steps() == [0, 1, 2, 3, 4]
    for step, value in t.values().items():
        np.testing.assert_array_equal(value, gradient(step))
        assert value.dtype == np.float32
    assert t.shape(2) == (3, 4)
    assert t.shapes()[4] == (3, 4)
    assert t.dtype(0) == "float32"
    assert trial.tensor("loss_output_0").value(4) == np.float32(6.0)
    assert trial.tensor("loss_output_0").value(4).shape == ()


def test_a_value_outlives_its_trial(runs: RunMaker) -> None:
    value = tt.create_trial(runs.make(2, tensors)).tensor("gradient/fc.weight").value(1)
    np.testing.assert_array_equal(value, gradient(1))
    assert not value.flags.writeable


DTYPES = ["float64", "float32", "float16", "complex64", "complex128", "bool", "int8", "uint64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_of_numpy_comes_back(runs: RunMaker, dtype: str) -> None:
    base = (np.random.default_rng(0).standard_normal((6, 10)) * 9).astype(dtype)
    view = base[::-1, ::3]
    path = runs.make(1, lambda _: {"x": view, "one": np.array(base[2, 2]), "none": base[:0]})
    trial = tt.create_trial(path)
    np.testing.assert_array_equal(trial.tensor("x").value(0), view)
    assert trial.tensor("x").value(0).dtype == dtype
    np.testing.assert_array_equal(trial.tensor("one").value(0), base[2, 2])
    assert trial.tensor("none").value(0).shape == (0, 10)


# All 256 bit patterns against the values that PyTorch gives them.
FLOAT8_VALUES = {
    "float8_e4m3fn": {0x00: 0.0, 0x01: 2**-9, 0x38: 1.0, 0x7E: 448.0, 0x7F: np.nan, 0xB8: -1.0},
    "float8_e5m2": {
        0x01: 2**-16,
        0x3C: 1.0,
        0x7B: 57344.0,
        0x7C: np.inf,
        0xFC: -np.inf,
        0x7D: np.nan,
    },
    "float8_e4m3fnuz": {0x01: 2**-10, 0x40: 1.0, 0x7F: 240.0, 0x80: np.nan, 0xC0: -1.0},
    "float8_e5m2fnuz": {0x01: 2**-17, 0x40: 1.0, 0x7F: 57344.0, 0x80: np.nan},
}


@pytest.mark.parametrize("dtype", FLOAT8_VALUES)
def test_float8_comes_back_as_float32(runs: RunMaker, dtype: str) -> None:
    bits = np.arange(256, dtype=np.uint8)
    session = runs.open()
    session.begin_step()
    record_array(session, "x", bits, dtype)
    session.close()
    value = tt.create_trial(session.out_dir).tensor("x").value(0)
    assert value.dtype == np.float32
    for code, number in FLOAT8_VALUES[dtype].items():
        np.testing.assert_equal(value[code], np.float32(number))
    torch = pytest.importorskip("torch")
    np.testing.assert_array_equal(
        value, torch.from_numpy(bits).view(getattr(torch, dtype)).float().numpy()
    )


def test_bfloat16_comes_back_as_float32(runs: RunMaker) -> None:
    floats = np.array([1.0, -2.5, 3e38, np.inf], np.float32)
    session = runs.open()
    session.begin_step()
    record_array(session, "x", (floats.view(np.uint32) >> 16).astype(np.uint16), "bfloat16")
    session.close()
    t = tt.create_trial(session.out_dir).tensor("x")
    np.testing.assert_allclose(t.value(0), floats, rtol=2**-8)
    assert t.dtype(0) == "bfloat16"


@pytest.mark.parametrize("is_abs", [False, True])
@pytest.mark.parametrize(
    ("name", "function"),
    [
        *(("min", np.min), ("max", np.max), ("mean", np.mean), ("std", np.std)),
        *(("variance", np.var), ("sum", np.sum), ("prod", np.prod), ("median", np.median)),
        ("l1", lambda x: np.abs(x).sum()),
        ("l2", lambda x: np.sqrt((x * x).sum())),
    ],
)
def test_reductions_are_numpys(trial: tt.Trial, name: str, function, is_abs: bool) -> None:
    t = trial.tensor("gradient/fc.weight")
    wide = gradient(3).astype(np.float64)
    want = function(np.abs(wide) if is_abs else wide)
    found = t.reduction_value(3, name, abs=is_abs)
    assert isinstance(found, np.float64)
    assert found == pytest.approx(want, rel=1e-12)
    if name not in ("prod", "median"):
        assert t.reduction_values(3)[name, is_abs] == found


def test_reductions_propagate_what_is_not_finite(runs: RunMaker) -> None:
    x = np.array([1.0, np.nan, -3.0], np.float32)
    y = np.array([1.0, -np.inf, 2.0], np.float32)
    trial = tt.create_trial(runs.make(1, lambda _: {"x": x, "y": y}))
    assert np.isnan(trial.tensor("x").reduction_value(0, "mean"))
    assert np.isnan(trial.tensor("x").reduction_value(0, "l2"))
    assert trial.tensor("y").reduction_value(0, "min") == -np.inf
    assert trial.tensor("y").reduction_value(0, "max", abs=True) == np.inf
    assert trial.tensor("x").statistics(0).mean == -1.0
    assert trial.tensor("x").statistics(0).nan_count == 1


def test_reductions_by_other_names(trial: tt.Trial) -> None:
    t = trial.tensor("gradient/fc.weight")
    assert t.reduction_value(1, "abs_mean") == t.reduction_value(1, "mean", abs=True)
    assert t.reduction_value(1, "l2_norm") == t.reduction_value(1, "l2", abs=True)
    assert t.reduction_value(1, "nan_count") == 0
    with pytest.raises(ValueError, match=r"kurtosis.*variance"):
        t.reduction_value(1, "kurtosis")


def test_without_raw_values(runs: RunMaker) -> None:
    path = runs.make(2, tensors, reduction_config=tt.ReductionConfig(reductions=["mean"]))
    t = tt.create_trial(path).tensor("gradient/fc.weight")
    assert t.reduction_value(0, "max") == gradient(0).max()
    with pytest.raises(TensorUnavailableForStep, match="save_raw_tensor") as missing:
        t.value(0)
    assert missing.value.has_reductions
    with pytest.raises(TensorUnavailableForStep):
        t.values()
    with pytest.raises(TensorUnavailableForStep) as missing:
        t.reduction_value(0, "median")
    assert missing.value.tname == "median"


def test_columns(trial: tt.Trial) -> None:
    steps, values = trial.tensor("fc.weight").column("mean")
    np.testing.assert_array_equal(steps, [0, 1, 2, 3, 4])
    np.testing.assert_array_equal(values, [0, 1, 2, 3, 4])
    found = trial.columns("weight", "abs_mean")
    assert list(found) == ["fc.weight", "gradient/fc.weight"]
    want = [np.abs(gradient(i)).mean(dtype=np.float64) for i in range(5)]
    np.testing.assert_allclose(found["gradient/fc.weight"][1], want, rtol=1e-12)
    with pytest.raises(TensorUnavailable):
        trial.columns(["fc.weight", "nothing"])


def test_matrix_has_nan_where_nothing_was_saved(runs: RunMaker) -> None:
    path = runs.make(4, lambda i: {"a": np.ones(2) * i, **({"b": np.ones(3)} if i % 2 else {})})
    found = tt.create_trial(path).matrix(["a", "b"], "max")
    np.testing.assert_array_equal(found.steps, [0, 1, 2, 3])
    np.testing.assert_array_equal(found.values, [[0, np.nan], [1, 1], [2, np.nan], [3, 1]])


def test_histogram(trial: tt.Trial) -> None:
    h = trial.tensor("gradient/fc.weight").histogram(0)
    assert h.counts.sum() == 12
    assert h.edges.shape == (65,)


def test_modes_and_their_steps(runs: RunMaker) -> None:
    session = runs.open()
    runs.steps(session, 3, lambda i: {"x": np.array([float(i)])}, modes.TRAIN)
    runs.steps(session, 2, lambda i: {"x": np.array([10.0 + i])}, modes.EVAL)
    runs.steps(session, 1, lambda i: {"x": np.array([20.0 + i])}, modes.TRAIN)
    session.close()
    trial = tt.create_trial(session.out_dir)
    assert trial.modes() == [modes.TRAIN, modes.EVAL]
    assert trial.steps() == [0, 1, 2, 3, 4, 5]
    assert trial.steps(modes.TRAIN) == [0, 1, 2, 3]
    assert trial.tensor("x").value(1, modes.EVAL)[0] == 11.0
    assert trial.tensor("x").value(4)[0] == 11.0
    assert trial.mode_modestep(4) == (modes.EVAL, 1)
    assert trial.mode(5) is modes.TRAIN
    assert trial.mode_step(5) == 3
    assert trial.global_step(modes.TRAIN, 3) == 5
    assert trial.global_step(modes.TRAIN, 9) is None
    assert trial.mode_modestep(77) == (None, None)
    assert trial.tensor("x").prev_steps(4, 2) == [3, 4]
    assert trial.tensor("x").prev_steps(2) == [0, 1, 2]


def test_errors_by_kind_of_miss_in_a_finished_run(runs: RunMaker) -> None:
    config = tt.SaveConfig(save_steps=[0, 4], save_interval=1000)
    trial = tt.create_trial(runs.make(6, tensors, save_config=config))
    t = trial.tensor("fc.weight")
    assert t.steps() == [0, 4]
    with pytest.raises(TensorUnavailable, match="did you mean 'loss_output_0'") as unknown:
        trial.tensor("loss_output_1")
    assert unknown.value.tname == "loss_output_1"
    for ask in (t.value, t.shape, t.statistics, lambda s: t.reduction_value(s, "mean")):
        with pytest.raises(StepUnavailable):
            ask(2)
    with pytest.raises(InvalidWorker):
        t.value(4, worker="worker_7")
    with pytest.raises(StepUnavailable):
        trial.wait_for_steps([0, 3])
    with pytest.raises(NoMoreData, match="last one is 4") as over:
        trial.wait_for_steps([0, 9])
    assert (over.value.step, over.value.last_step) == (9, 4)
    assert trial.has_passed_step(4) is StepState.AVAILABLE
    assert trial.has_passed_step(3) is StepState.UNAVAILABLE
    assert trial.has_passed_step(9) is StepState.UNAVAILABLE


def test_a_tensor_that_a_step_lacks(runs: RunMaker) -> None:
    path = runs.make(2, lambda i: {"always": np.ones(2), **({"late": np.ones(2)} if i else {})})
    trial = tt.create_trial(path)
    with pytest.raises(TensorUnavailableForStep) as missing:
        trial.tensor("late").value(0)
    assert not missing.value.has_reductions
    with pytest.raises(tt.exceptions.ShapeUnavailableForStep):
        trial.tensor("late").shape(0)
    assert pickle.loads(pickle.dumps(missing.value)).tname == "late"


def test_following_a_running_session(runs: RunMaker) -> None:
    session = runs.open()
    runs.steps(session, 2, tensors)
    assert session.flush()
    trial = tt.create_trial(session.out_dir)
    assert trial.steps() == [0, 1]
    assert not trial.loaded_all_steps
    t = trial.tensor("fc.weight")
    with pytest.raises(StepNotYetAvailable):
        t.value(2)
    assert trial.has_passed_step(2) is StepState.NOT_YET_AVAILABLE
    with pytest.raises(UnavailableError, match="step 2 did not come in time"):
        trial.wait_for_steps([2], timeout=0.05)
    trial.dynamic_refresh = False
    runs.steps(session, 1, tensors)
    assert session.flush()
    assert trial.steps() == [0, 1]
    trial.dynamic_refresh = True
    assert trial.steps() == [0, 1, 2]
    session.close()
    trial.refresh_data()
    assert trial.loaded_all_steps


def test_waiting_leaves_other_threads_running(runs: RunMaker) -> None:
    session = runs.open()
    runs.steps(session, 1, tensors)
    session.flush()
    trial = tt.create_trial(session.out_dir)

    def train() -> None:
        time.sleep(0.1)
        runs.steps(session, 3, tensors)
        session.flush()

    thread = threading.Thread(target=train)
    thread.start()
    began = time.monotonic()
    trial.wait_for_steps([1, 2, 3], timeout=20)
    assert time.monotonic() - began < 2
    thread.join()
    assert trial.dynamic_refresh


def test_waiting_can_be_interrupted(runs: RunMaker) -> None:
    session = runs.open()
    runs.steps(session, 1, tensors)
    session.flush()
    trial = tt.create_trial(session.out_dir)
    # Who starts us in the background may have told us to ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            trial.wait_for_steps([5], timeout=20)
    finally:
        signal.signal(signal.SIGINT, before)


def test_range_of_steps(runs: RunMaker) -> None:
    path = runs.make(6, tensors)
    trial = tt.create_trial(path, range_steps=(2, 4))
    assert trial.steps() == [2, 3]
    assert trial.tensor("fc.weight").column()[1].tolist() == [2, 3]
    with pytest.raises(ValueError, match="FIRST < LAST"):
        tt.create_trial(path, range_steps=(4, 2))


def test_opening(runs: RunMaker, tmp_path: Path) -> None:
    path = runs.make(1, tensors, worker="worker_3")
    trial = tt.create_trial(out_dir=f"  {path}/ ")
    assert trial.name == "run"
    assert trial.workers() == ["worker_3"]
    assert trial.num_workers == 1
    with pytest.raises(RunNotFoundError, match="nothing_here"):
        tt.create_trial(tmp_path / "nothing_here")
    with pytest.raises(FileNotFoundError):
        tt.create_trial(str(tmp_path / "nothing_here"))
    with pytest.raises(InvalidArgumentError):
        tt.create_trial()
    assert trial == tt.create_trial(trial.path)


def test_collections_are_read_back(runs: RunMaker) -> None:
    collections = _core.CollectionSet()
    mine = tt.Collection(
        "mine", ["^fc"], ["loss_output_0"], save_config=tt.SaveConfig(save_interval=1)
    )
    collections.add(mine)
    path = runs.make(1, tensors, collections=collections)
    found = tt.create_trial(path).collections()["mine"]
    assert found.include_regex == ["^fc"]
    assert "loss_output_0" in found.tensor_names
    assert found.save_config == tt.SaveConfig(save_interval=1)
    assert tt.create_trial(path).tensor_names(collection="mine") == ["fc.weight", "loss_output_0"]
    assert tt.create_trial(path).collection("unknown").include_regex == []


def test_texts_and_scalars(runs: RunMaker) -> None:
    session = runs.open()
    session.begin_step()
    session.record_scalar("scalar/accuracy", 0.75)
    session.record_text("note", "übermäßig\n")
    session.close()
    trial = tt.create_trial(session.out_dir)
    assert trial.tensor("scalar/accuracy").value(0) == 0.75
    assert trial.tensor("note").text(0) == "übermäßig\n"


def test_labels_in_order_of_their_numbers(runs: RunMaker) -> None:
    path = runs.make(1, lambda _: {f"labels_{i}": np.array([float(i)]) for i in range(12)})
    assert [v[0] for v in tt.create_trial(path).labels(0)] == list(range(12))


def test_statistics_that_the_framework_computed(runs: RunMaker) -> None:
    session = runs.open()
    session.begin_step()
    given = {"count": 4, "nan_count": 1, "min": -2.0, "max": 3.0, "mean": 0.5, "variance": 2.0}
    session.record_statistics(session.intern("x"), _core.dtype_code("bfloat16"), (2, 2), given)
    with pytest.raises(ValueError, match="'l2' follows from other statistics"):
        session.record_statistics(0, 2, (1,), {"l2": 1.0})
    session.close()
    found = tt.create_trial(session.out_dir).tensor("x").statistics(0)
    assert {name: found[name] for name in given} == given
    assert (found.dtype, found.shape, found.finite_count) == ("bfloat16", (2, 2), 3)


def test_changes_of_a_running_collection_reach_the_next_step(runs: RunMaker) -> None:
    collections = _core.CollectionSet()
    group = tt.Collection("group", ["^a"])
    collections.add(group)
    session = runs.open(
        collections=collections,
        include_collections=["group"],
        save_all=False,
        save_config=tt.SaveConfig(save_interval=1),
    )
    arrays = {"a": np.ones(2), "b": np.ones(2)}
    runs.steps(session, 2, lambda _: arrays)
    group.include("^b$")
    runs.steps(session, 2, lambda _: arrays)
    group.save_config = tt.SaveConfig(save_interval=1)
    group.save_config.end_step = 0
    runs.steps(session, 2, lambda _: arrays)
    session.close()
    trial = tt.create_trial(session.out_dir)
    assert trial.tensor("a").steps() == [0, 1, 2, 3]
    assert trial.tensor("b").steps() == [2, 3]


def test_a_directory_that_holds_a_run_is_refused(runs: RunMaker) -> None:
    runs.make(2, tensors)
    with pytest.raises(FileExistsError, match="resume=True"):
        runs.open()
    session = runs.open(resume=True)
    runs.steps(session, 1, tensors)
    session.close()
    trial = tt.create_trial(session.out_dir)
    assert trial.steps() == [0, 1, 2]
    assert [trial.step_info(step).session for step in trial.steps()] == [0, 0, 1]
