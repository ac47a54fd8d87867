"""Wrong calls: one clear error to the caller, before anything is opened, and none to the training."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from oracle import fit, hooks_on, open_hook
from torch import nn

import tensortap
import tensortap.pytorch as smd
from tensortap.exceptions import InvalidArgumentError, InvalidTypeError
from tensortap.pytorch.led_hook import LedHook


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 1))


def led_hook(**arguments: Any) -> LedHook:
    defaults = {
        "hook": None,
        "out_dir": None,
        "rules": (),
        "collections": None,
        "save_interval": 1,
        "save_raw_tensor": False,
        "hook_arguments": {},
    }
    return LedHook(**{**defaults, **arguments})


def test_calls_after_close_do_nothing_and_say_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, other = small(), small()
    hook = open_hook(tmp_path / "run")
    hook.register_module(model)
    fit(model, 1)
    hook.close()
    hook.register_module(other)
    hook.register_loss(nn.MSELoss())
    hook.set_mode(smd.modes.EVAL)
    hook.save_scalar("a", 1)
    hook.save_tensor("b", torch.ones(1))
    hook.record_tensor_value("c", torch.ones(1))
    fit(other, 1)
    assert hooks_on(model, other) == []
    assert [record.message for record in caplog.records] == [
        "register_module after close(): nothing more is recorded; a new hook with resume=True goes on in the run"
    ]
    assert smd.create_trial(tmp_path / "run").steps() == [0]


@pytest.mark.parametrize(
    ("argument", "value", "words"),
    [
        ("out_dir", None, "must be a path, not None"),
        ("out_dir", "", "the directory of a run needs a name"),
        ("out_dir", "a\0b", "NUL"),
        ("out_dir", "\ud800", "not UTF-8"),
        ("save_all", "maybe", "save_all must be True or False, not 'maybe'"),
        ("resume", 3, "resume must be True or False, not 3"),
        ("strict", 3, "strict must be True or False, not 3"),
        ("dry_run", "x", "dry_run must be True or False, not 'x'"),
        ("reduction_config", "mean", "reduction_config takes a ReductionConfig, not 'mean'"),
        ("worker", 3, "worker takes a name that is a str, not int"),
        ("queue_bytes", -1, "queue_bytes must be at least 0, not -1"),
        ("queue_bytes", "64M", "queue_bytes must be a whole number, not '64M'"),
        ("compute_threads", 1.5, "compute_threads must be a whole number, not 1.5"),
        ("rules", 3, "rules takes a list of rules, not 3"),
    ],
)
def test_a_wrong_argument_of_a_hook_is_one_line_that_names_it(
    tmp_path: Path, argument: str, value: object, words: str
) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        smd.Hook(**{"out_dir": tmp_path / "run", argument: value})
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


class Broken:
    def item(self) -> float:
        return 1 / 0


@pytest.mark.parametrize(
    "call",
    [
        lambda hook: hook.save_scalar("a", 10**400),
        lambda hook: hook.save_scalar("a", Broken()),
        lambda hook: hook.get_collection(3),
        lambda hook: hook.get_collection(""),
        lambda hook: hook.get_collection("\ud800"),
        lambda hook: hook.get_collection("a").add_module_tensors(None),
        lambda hook: hook.get_collection("a").add_module_tensors("layer"),
        lambda hook: hook.flush("soon"),
    ],
)
def test_a_wrong_call_is_one_line_and_harms_nothing(
    tmp_path: Path, call: Callable[[smd.Hook], Any]
) -> None:
    model = small()
    hook = open_hook(tmp_path / "run")
    hook.register_module(model)
    with pytest.raises(InvalidArgumentError) as error:
        call(hook)
    assert "\n" not in str(error.value)
    fit(model, 2)
    hook.close()
    assert smd.create_trial(tmp_path / "run").steps() == [0, 1]


@pytest.mark.parametrize(
    "arguments",
    [{"loss": nn.functional.mse_loss}, {"optimizer": "SGD"}, {"loss": "the model"}],
)
def test_watch_refuses_before_it_opens_a_run(tmp_path: Path, arguments: dict[str, Any]) -> None:
    model = small()
    if arguments.get("loss") == "the model":
        arguments = {"loss": model}
    with pytest.raises(InvalidArgumentError):
        tensortap.watch(model, out_dir=tmp_path / "run", **arguments)
    assert hooks_on(model) == []
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"hook": "mine"}, "takes a tensortap.pytorch.Hook, not str"),
        ({"out_dir": 3}, "must be a path, not 3"),
        ({"collections": 3}, "expected a string or a list of strings, not 3"),
    ],
)
def test_a_callback_for_a_library_refuses_when_it_is_made(
    arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidTypeError, match=re.escape(words)):
        led_hook(**arguments)


def test_one_collection_may_be_a_string(tmp_path: Path) -> None:
    led = led_hook(out_dir=tmp_path / "led", collections="gradients")
    led.attach(small())
    assert led.hook is not None
    with tensortap.watch(small(), out_dir=tmp_path / "watch", collections="gradients") as hook:
        assert hook.include_collections == led.hook.include_collections
        assert "gradients" in hook.include_collections
    led.hook.close()


@pytest.mark.parametrize("name", [3, "", "\ud800"])
def test_a_collection_needs_a_name(name: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        smd.Collection(name)


def test_an_included_collection_that_nobody_fills_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = open_hook(tmp_path / "run", include_collections=["gradient"], strict=False)
    model = small()
    hook.register_module(model)
    fit(model, 2)
    hook.close()
    assert [record.message for record in caplog.records] == [
        "Tensortap switched itself off: the collection 'gradient' is to be saved but can match nothing: give it "
        "include_regex or tensor names before the first step. The training goes on; what was recorded until now is "
        "kept."
    ]


def test_a_wrong_type_is_a_type_error_too() -> None:
    assert issubclass(InvalidTypeError, TypeError)
    with pytest.raises(TypeError, match="must be a path"):
        smd.Hook(3)
