from __future__ import annotations

import subprocess
import sys


def test_tuning_freezes_what_was_imported_and_shortens_turns() -> None:
    code = (
        "import gc, sys\n"
        "from tailrace.runtime.interpreter import tune\n"
        "tune()\n"
        "print(sys.getswitchinterval() < 0.005, gc.get_freeze_count() > 1000, gc.isenabled())"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert shown.stdout.split() == ["True", "True", "True"]
