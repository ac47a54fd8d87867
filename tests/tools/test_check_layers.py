import pytest

LAYERS = """\
# A small house.
[order]
base    ground
trace   first
rules   second

[leaves]
rules/builtin

[headers]
json/      *.cc
args/      rules/*.cc
bind/      python/bindings
simd.h     base trace

[python]
torch      python/pkg/pytorch
jax        python/pkg/jax
"""

CLEAN = {
    "src/base/text.h": "#pragma once\n#include <string>\n",
    "src/base/text.cc": '#include "base/text.h"\n#include <json/json.hpp>\n#include <simd.h>\n',
    "src/trace/writer.h": '#include "base/text.h"\n#include "trace/format.h"\n',
    "src/trace/format.h": "#include <simd.h>\n",
    "src/rules/rule.h": '#include "trace/writer.h"\n',
    "src/rules/builtin/loss.h": '#include "rules/rule.h"\n',
    "src/rules/builtin/loss.cc": '#include "rules/builtin/loss.h"\n#include "args/args.h"\n',
    "src/rules/builtin/loss_test.cc": '#include "rules/builtin/loss.h"\n',
    "python/bindings/trace.cc": '#include <bind/bind.h>\n#include "bindings/all.h"\n'
    '#include "trace/writer.h"\n',
    "python/bindings/all.h": "#include <bind/bind.h>\n",
    "python/pkg/__init__.py": "import os\n\ndef watch():\n    from pkg.pytorch import hook\n",
    "python/pkg/trial.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
    "    from .pytorch import hook\n",
    "python/pkg/pytorch/hook.py": "import torch.nn\nfrom .. import trial\n",
    "python/pkg/jax/hook.py": "import jax\nimport torchvision\n",
}


@pytest.fixture
def house(tree):
    tree.write("layers.txt", LAYERS)
    for path, text in CLEAN.items():
        tree.write(path, text)
    return tree


def test_clean_house_passes(house):
    assert house.run("check_layers.py") == (0, ["check_layers: no violations"])


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        # order
        (
            "src/base/up.h",
            '#pragma once\n\n  #  include "trace/format.h"\n',
            "3: base/ may not include trace/format.h: trace/ comes after it in layers.txt",
        ),
        (
            "src/trace/up_test.cc",
            "#include <rules/rule.h>\n",
            "1: trace/ may not include rules/rule.h: rules/ comes after it in layers.txt",
        ),
        ("src/cellar/wine.h", "", "1: the folder cellar/ is not in layers.txt"),
        (
            "src/trace/near.cc",
            '#include "format.h"\n',
            "1: format.h is not under src/ (ours are named from src/, others go in <>)",
        ),
        # leaves
        (
            "src/rules/engine.cc",
            '#include "rules/builtin/loss.h"\n',
            "1: may not include rules/builtin/loss.h: rules/builtin/ is a leaf, known by its "
            "generated list alone",
        ),
        (
            "src/rules/builtin/gradient.cc",
            '#include "rules/builtin/loss.h"\n',
            "1: may not include rules/builtin/loss.h: files of the leaf rules/builtin/ stand alone",
        ),
        (
            "python/bindings/rules.cc",
            '#include "rules/builtin/loss.h"\n',
            "1: may not include rules/builtin/loss.h: rules/builtin/ is a leaf, known by its "
            "generated list alone",
        ),
        # heavy headers
        (
            "src/base/json.h",
            "#include <json/json.hpp>\n",
            "1: may not include json/json.hpp: only *.cc may",
        ),
        (
            "src/trace/args.cc",
            '#include "args/args.h"\n',
            "1: may not include args/args.h: only rules/*.cc may",
        ),
        (
            "src/rules/args.h",
            '#include "args/args.h"\n',
            "1: may not include args/args.h: only rules/*.cc may",
        ),
        (
            "src/rules/bind.cc",
            "#include <bind/bind.h>\n",
            "1: may not include bind/bind.h: only python/bindings may",
        ),
        (
            "src/rules/simd.cc",
            "#include <simd.h>\n",
            "1: may not include simd.h: only base, trace may",
        ),
        (
            "python/bindings/simd.cc",
            "#include <simd.h>\n",
            "1: may not include simd.h: only base, trace may",
        ),
        # Python
        (
            "python/pkg/pretty.py",
            "def show():\n    import torch\n",
            "2: may not import torch: only python/pkg/pytorch/ may",
        ),
        (
            "python/pkg/jax/mixed.py",
            "from torch.nn import Module\n",
            "1: may not import torch: only python/pkg/pytorch/ may",
        ),
        (
            "python/pkg/jax/lazy.py",
            "def f():\n    from ..pytorch import hook\n",
            "2: may not import pkg.pytorch: it belongs to another framework",
        ),
        (
            "python/pkg/eager.py",
            "try:\n    from . import pytorch\nexcept ImportError:\n    pass\n",
            "2: may import pkg.pytorch inside a function only",
        ),
        ("python/pkg/broken.py", "x = 1\ndef\n", "2: not Python: invalid syntax"),
    ],
)
def test_each_violation_is_found(house, path, text, expected):
    house.write(path, text)
    code, lines = house.run("check_layers.py")
    assert lines == [f"{path}:{expected}", "check_layers: 1 violation"]
    assert code == 1


def test_a_module_with_a_longer_name_is_another_module(house):
    house.write("python/pkg/names.py", "import torchmetrics\nimport jaxtyping\n")
    assert house.run("check_layers.py")[0] == 0
