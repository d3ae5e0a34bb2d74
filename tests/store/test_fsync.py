"""The fsyncs that a store's process really makes, seen from below: a library counts them, and refuses them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.store.conftest import WAIT_S

STORE = """
import ctypes, json, sys
from tailrace.errors import StoreFailed
from tailrace.store.engine import Store, StoreOptions
from tailrace.store.operations import put
kernel = ctypes.CDLL(None)
fsyncs = ctypes.c_int.in_dll(kernel, "log_syncs")
refuse = ctypes.c_int.in_dll(kernel, "refuse_log_syncs")
folder, durability = sys.argv[1:]
store = Store.open(folder, era=0, options=StoreOptions(durability=durability))
made = []
for number in range(3):
    before = fsyncs.value
    store.write([put("t", b"%d" % number, b"v")])
    made.append(fsyncs.value - before)
safe = store.safe_through()
refuse.value = 1
try:
    told = store.write([put("t", b"refused", b"v")]).last
except StoreFailed as error:
    told = str(error)
print(json.dumps({"made": made, "safe": [safe, store.safe_through()], "told": told}))
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiled = tmp_path_factory.mktemp("log-syncs") / "log_syncs.so"
    source = Path(__file__).parent / "fixture" / "log_syncs.c"
    command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(compiled), str(source), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"the fixture does not compile; install a C compiler\n{done.stderr}"
    return compiled


def run_store(library: Path, folder: Path, durability: str) -> dict[str, Any]:
    command = [sys.executable, "-c", STORE, str(folder), durability]
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("durability", ["grouped", "fsync"])
def test_the_log_is_fsynced_before_a_write_is_answered(library: Path, tmp_path: Path, durability: str) -> None:
    found = run_store(library, tmp_path / "store", durability)

    assert found["made"] == [1, 1, 1]
    assert "fsync failed: IO error" in found["told"]  # so the answer waits for what the fsync says
    assert found["safe"] == [6, 6]


def test_without_durability_the_log_is_not_fsynced(library: Path, tmp_path: Path) -> None:
    assert run_store(library, tmp_path / "store", "none") == {"made": [0, 0, 0], "safe": [6, 8], "told": 8}
