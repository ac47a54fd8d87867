"""Save and reduction configuration and collections: what smdebug's scripts and files give."""

from __future__ import annotations

import pytest
from run_maker import RunMaker

import tensortap as tt
from tensortap import _core, modes
from tensortap.collection import CollectionManager
from tensortap.config import ReductionConfig, SaveConfig, SaveConfigMode
from tensortap.exceptions import InvalidArgumentError, InvalidTypeError, NotFoundError


@pytest.mark.parametrize(
    ("options", "due"),
    [
        ({}, {0, 500, 1000}),
        ({"save_interval": 300}, {0, 300, 600, 900}),
        # Counted from 0, not from the start; the end is not included.
        ({"save_interval": "300", "start_step": "100", "end_step": "900"}, {300, 600}),
        ({"save_interval": 10.0, "end_step": 15}, {0, 10}),
        # A list of steps adds to the interval and knows no start or end.
        (
            {"save_interval": 500, "start_step": 1, "end_step": 501, "save_steps": [3, 999]},
            {3, 500, 999},
        ),
        ({"end_step": 0}, set()),
    ],
)
def test_which_steps_are_due(options: dict, due: set[int]) -> None:
    config = SaveConfigMode(**options)
    assert {step for step in range(1001) if config.should_save_step(step)} == due
    everywhere = SaveConfig(**options)
    assert {s for s in range(1001) if everywhere.should_save_step(modes.EVAL, s)} == due
    assert SaveConfigMode.from_dict(config.to_json_dict()) == config
    assert SaveConfig.from_json(everywhere.to_json()) == everywhere


@pytest.mark.parametrize(
    "options",
    [
        {"save_interval": 0},
        {"save_interval": -1},
        {"save_interval": "often"},
        {"save_interval": 1.5},
        {"save_interval": True},
        {"start_step": -1},
        {"end_step": "end"},
        {"save_steps": "1,2"},
        {"save_steps": ["1"]},
        {"save_steps": [-3]},
    ],
)
def test_bad_save_options_are_refused(options: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        SaveConfigMode(**options)


def test_assigning_a_bad_option_changes_nothing() -> None:
    config = SaveConfigMode(7)
    with pytest.raises(InvalidArgumentError):
        config.save_interval = 0
    assert config.save_interval == 7
    config.save_interval = "8"
    assert config.save_interval == 8


def test_modes_of_a_save_config() -> None:
    config = SaveConfig({modes.TRAIN: SaveConfigMode(5), "eval": None})
    assert config.get_save_config(modes.TRAIN).save_interval == 5
    with pytest.raises(ValueError, match="EVAL"):
        config.get_save_config(modes.EVAL)
    config.merge_default_save_config(SaveConfig(save_interval=9))
    assert config.get_save_config(modes.EVAL).save_interval == 9
    assert config.get_save_config(modes.TRAIN).save_interval == 5
    assert list(config.to_json_dict()) == ["TRAIN", "EVAL", "PREDICT", "GLOBAL"]
    assert list(config.to_json_dict()["TRAIN"]) == [
        *("save_interval", "save_steps", "start_step", "end_step")
    ]
    for bad in ({"TRIAN": SaveConfigMode()}, {1.5: None}, {modes.TRAIN: 3}, 7):
        with pytest.raises(ValueError, match=r"mode|ModeKeys|TRAIN"):
            SaveConfig(bad)


def test_options_of_all_modes_at_once() -> None:
    config = SaveConfig(save_interval=4)
    assert config.save_interval == 4
    config.end_step = 0
    assert not config.should_save_step(modes.PREDICT, 0)
    config.set_save_config(modes.EVAL, SaveConfigMode(9))
    with pytest.raises(AttributeError, match="differs between the modes"):
        _ = config.save_interval
    with pytest.raises(AttributeError):
        _ = config.safe_interval


def test_the_engine_sees_what_python_shows() -> None:
    config = SaveConfig({modes.TRAIN: SaveConfigMode(5)})
    assert _core.SaveConfig.get(config, 1).save_interval == 5
    assert _core.SaveConfig.get(config, 2) is None
    config.get_save_config(modes.TRAIN).save_interval = 6
    assert _core.SaveConfig.get(config, 1).save_interval == 6


def test_what_stands_for_a_save_config() -> None:
    assert SaveConfig.parse(None) is None
    assert SaveConfig.parse(SaveConfigMode(3)) == SaveConfig(save_interval=3)
    assert SaveConfig.parse({"save_interval": 3}) == SaveConfig(save_interval=3)
    assert SaveConfig.parse({"TRAIN": {"save_interval": "3"}}).to_json_dict()["EVAL"] is None
    filled = SaveConfig.from_dict({"TRAIN": {"save_interval": 3}}, {"save_interval": 8})
    assert filled.get_save_config(modes.EVAL).save_interval == 8
    with pytest.raises(InvalidTypeError):
        SaveConfig.parse(3)
    with pytest.raises(TypeError):
        SaveConfigMode.from_dict([])
    with pytest.raises(InvalidArgumentError, match=r"save_intervall.*valid: save_interval"):
        SaveConfigMode.from_dict({"save_intervall": 3})


# ReductionConfig.


def test_reductions_as_tokens() -> None:
    config = ReductionConfig(["mean", "max"], ["std"], ["l1"], ["l2"], save_raw_tensor="True")
    assert config.save_raw_tensor is True
    assert config.to_json_dict() == {
        "save_raw_tensor": True,
        "reductions": "mean,max,l1_norm,abs_std,abs_l2_norm",
        "save_shape": False,
    }
    again = ReductionConfig.from_json(config.to_json())
    assert again == config
    assert again.abs_norms == ["l2"]
    assert _core.ReductionConfig.parse_reductions(" mean , abs_l2_norm ") == ["mean", "abs_l2_norm"]


def test_tokens_that_smdebug_documented_but_refused() -> None:
    assert ReductionConfig.from_dict({"reductions": "l1, abs_l2"}).norms == ["l1"]
    assert ReductionConfig(reductions=["prod", "median"]).tokens == []
    assert ReductionConfig.from_dict(None) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reductions": ["kurtosis"]}, "kurtosis.*variance"),
        ({"norms": ["l3"]}, "l3"),
        ({"save_raw_tensor": "perhaps"}, "save_raw_tensor"),
        ({"save_shape": 7}, "save_shape"),
    ],
)
def test_bad_reductions_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReductionConfig(**options)


# Collections.


def test_a_collection_alone() -> None:
    c = tt.Collection(
        "c", ["a$"], {"x"}, ReductionConfig(["mean"]), SaveConfig(save_interval=2), False
    )
    c.include(["b", ["c(?=d)"]])
    c.add_tensor_name("y")
    assert c.include_regex == ["a$", "b", "c(?=d)"]
    assert c.tensor_names == {"x", "y"}
    assert c.has_tensor_name("y")
    assert c.matches("zcd")
    assert not c.matches("zc")
    c.remove_tensor_name("y")
    c.tensor_names = None
    assert c.tensor_names == set()
    assert not c.save_histogram
    assert tt.Collection.from_json(c.to_json()) == c
    assert hash(c) == hash(tt.Collection("c"))
    assert tt.Collection("c") != c


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda c: c.include(3), TypeError),
        (lambda c: c.include("(open"), InvalidArgumentError),
        (lambda c: setattr(c, "reduction_config", 3), TypeError),
        (lambda c: setattr(c, "save_config", 3), TypeError),
        (lambda c: setattr(c, "tensor_names", 3), TypeError),
    ],
)
def test_bad_changes_of_a_collection_are_refused(change, error: type[Exception]) -> None:
    with pytest.raises(error):
        change(tt.Collection("c"))


def test_a_save_config_stays_connected() -> None:
    c = tt.Collection("c", save_config={"TRAIN": SaveConfigMode(2)})
    core = _core.Collection(c)
    c.save_config.get_save_config(modes.TRAIN).save_interval = 5
    assert core.save_config.get(1).save_interval == 5
    c.save_config.end_step = 0
    assert core.save_config.get(4).end_step == 0
    c.reduction_config = ReductionConfig()
    c.reduction_config.save_raw_tensor = True
    assert core.reduction_config.save_raw_tensor


def test_a_manager_hands_out_the_same_objects() -> None:
    owner = _core.CollectionSet()
    manager = CollectionManager(owner)
    made = manager.get("made")
    made.include("x")
    assert manager.get("made") is made
    assert owner.find("made").include_regex == ["x"]
    mine = tt.Collection("mine", ["y"])
    manager.add(mine)
    mine.include("z")
    assert owner.find("mine").include_regex == ["y", "z"]
    assert set(manager.get_collections()) == {"made", "mine"}
    replacement = tt.Collection("made", ["new"])
    manager.add(replacement)
    assert made.include_regex == ["new"]  # by name: there is one collection of a name
    with pytest.raises(NotFoundError, match="made, mine"):
        manager.get("other", create=False)


def test_opening_that_fails_leaves_the_collections_alone(runs: RunMaker) -> None:
    runs.open().close()
    collections = _core.CollectionSet()
    collections.get_or_create("c").include("x")
    with pytest.raises(tt.TensortapError):
        runs.open(worker="../up", collections=collections)
    assert collections.find("c").include_regex == ["x"]
    first = runs.open("other", collections=collections)
    with pytest.raises(ValueError, match="another session"):
        runs.open("third", collections=collections)
    first.close()


def test_bad_session_options_are_refused(runs: RunMaker) -> None:
    with pytest.raises(ValueError, match='"block" or "drop", not "wait"'):
        runs.open(backpressure="wait")
    session = runs.open()
    with pytest.raises(ValueError, match="no mode has the number 9"):
        session.set_mode(9)
    with pytest.raises(ValueError, match="tuples of"):
        session.record_batch([(1, 2)])
    with pytest.raises(ValueError, match=r"intern\(\)"):
        session.record_batch([(-1, 0, 2, (0,), None)])
