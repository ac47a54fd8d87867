"""Which collections a module's inputs and outputs belong to by its class, whatever the module is called."""

from __future__ import annotations

import re
from typing import NamedTuple

import torch


class Kinds(NamedTuple):
    """Collections that the inputs and the outputs of a module join."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


# (class name, collections of inputs, of outputs), the first that fits counts. By name, since models bring classes of
# their own (BertSelfAttention, T5LayerNorm); the words in them are the field's.
_BY_CLASS_NAME: list[tuple[re.Pattern[str], Kinds]] = [
    (re.compile(r"relu", re.IGNORECASE), Kinds(("relu_input",), ("relu_output",))),
    (re.compile(r"^(Hard)?Tanh(?!shrink)"), Kinds(("tanh_input",), ())),
    (re.compile(r"^(Hard)?Sigmoid"), Kinds(("sigmoid_input",), ())),
    (re.compile(r"attention|attn", re.IGNORECASE), Kinds((), ("attention_output",))),
    (re.compile(r"(?<!Weight)(?<!Spectral)Norm(?!alize)"), Kinds((), ("normalization_output",))),
]

_EMBEDDING = Kinds(("embedding_input",), ())
_NOTHING = Kinds((), ())


def kinds_of(module: torch.nn.Module) -> Kinds:
    """Collections for the inputs and outputs of a module, by its class."""
    if isinstance(module, torch.nn.Embedding | torch.nn.EmbeddingBag):
        return _EMBEDDING
    name = type(module).__name__
    return next((kinds for pattern, kinds in _BY_CLASS_NAME if pattern.search(name)), _NOTHING)
