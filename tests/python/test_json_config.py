"""Hooks made from configuration files in SageMaker's shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from trainings import mlp

import tensortap
import tensortap.pytorch as smd
from tensortap.exceptions import InvalidArgumentError


def write(path: Path, **document: Any) -> Path:
    path.write_text(json.dumps(document))
    return path


def train(hook: smd.Hook, steps: int) -> None:
    model = mlp(4, 8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    hook.register_module(model)
    for _ in range(steps):
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
    hook.close()


def test_the_most_specific_setting_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write(
        tmp_path / "config.json",
        LocalPath=str(tmp_path / "run"),
        S3OutputPath="s3://ignored/here",
        HookParameters={"save_interval": "4", "global.save_interval": "3"},
        CollectionConfigurations=[
            {"CollectionName": "weights"},
            {"CollectionName": "gradients", "CollectionParameters": {"save_interval": 6}},
            {
                "CollectionName": "biases",
                "CollectionParameters": {"global.save_interval": "5", "save_steps": "2, 7"},
            },
        ],
    )
    monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(config))
    train(smd.Hook.create_from_json_file(), 13)
    trial = tensortap.create_trial(tmp_path / "run")
    assert trial.tensor("Sequential_0.weight").steps() == [0, 3, 6, 9, 12]
    assert trial.tensor("gradient/Sequential_2.weight").steps() == [0, 6, 12]
    assert trial.tensor("Sequential_0.bias").steps() == [0, 2, 5, 7, 10]


def test_a_custom_collection_with_regexes_that_hold_commas(tmp_path: Path) -> None:
    config = write(
        tmp_path / "config.json",
        LocalPath=str(tmp_path / "run"),
        HookParameters={"save_interval": 1, "reductions": "mean", "save_raw_tensor": "True"},
        CollectionConfigurations=[
            {
                "CollectionName": "mine",
                "CollectionParameters": {"include_regex": "_0.weigh[s,t]{1,1}, ^0_output"},
            }
        ],
    )
    train(smd.Hook.create_from_json_file(config), 2)
    trial = tensortap.create_trial(tmp_path / "run")
    assert trial.tensor_names(collection="mine") == [
        "0_output_0",
        "Sequential_0.weight",
        "gradient/Sequential_0.weight",
    ]
    assert trial.tensor("Sequential_0.weight").value(1).shape == (8, 4)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"HookParameters": {"save_intervall": 3}}, "save_intervall"),
        ({"HookParameters": {"save_interval": "often"}}, "save_interval"),
        ({"HookParameters": {"save_all": "perhaps"}}, "save_all"),
        ({"HookParameters": {"save_steps": "1,x"}}, "save_steps"),
        ({"HookParameters": [1]}, "HookParameters must be an object"),
        ({"CollectionConfigurations": [{}]}, "CollectionName"),
        ({"CollectionConfigurations": {"a": 1}}, "must be a list"),
        (
            {
                "CollectionConfigurations": [
                    {"CollectionName": "a", "CollectionParameters": {"b": 1}}
                ]
            },
            "'b'",
        ),
    ],
)
def test_a_wrong_file_is_one_clear_line(tmp_path: Path, document: Any, message: str) -> None:
    config = write(tmp_path / "config.json", LocalPath=str(tmp_path / "run"), **document)
    with pytest.raises(InvalidArgumentError, match=message) as error:
        smd.Hook.create_from_json_file(config)
    assert str(error.value).endswith(str(config))
    assert not (tmp_path / "run").exists()


def test_a_file_that_is_empty_or_missing(tmp_path: Path) -> None:
    (tmp_path / "empty.json").write_text("")
    with pytest.raises(InvalidArgumentError, match="not JSON"):
        smd.Hook.create_from_json_file(tmp_path / "empty.json")
    with pytest.raises(FileNotFoundError):
        smd.Hook.create_from_json_file(tmp_path / "missing.json")
