"""The scripts in README.md run as they stand, one after the other in one folder."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"


def test_scripts_run(tmp_path: Path) -> None:
    scripts = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    outputs = []
    for script in scripts:
        command = [sys.executable, "-c", script]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        outputs.append((result.stdout, result.stderr))
    watch, questions, lightning, drop_in = outputs
    assert "100 (0 to 99)" in watch[0]
    assert "\n99 " in questions[0]
    # A rule ends the training of Lightning, and says so through `logging`.
    assert re.search(r"^steps \d of 50$", lightning[0], flags=re.MULTILINE)
    assert "trainer.should_stop" in lightning[1]
    # The custom rule of the drop-in script fires, and says so through `logging`.
    assert "loss_output_0" in drop_in[0]
    assert "CustomGradientRule" in drop_in[1]
