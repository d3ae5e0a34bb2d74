"""Each package says honestly what is public: `__all__` names what is there, and all that is there on purpose."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import tailrace

PACKAGES = sorted(module.name for module in pkgutil.walk_packages(tailrace.__path__, "tailrace.") if module.ispkg)


def source_of(name: str) -> ast.Module:
    file = importlib.import_module(name).__file__
    assert file is not None
    return ast.parse(Path(file).read_text())


@pytest.mark.parametrize("name", PACKAGES)
def test_all_names_exist(name: str) -> None:
    package = importlib.import_module(name)
    exported = getattr(package, "__all__", [])
    assert len(set(exported)) == len(exported)
    modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
    missing = [each for each in exported if not hasattr(package, each) and each not in modules]
    assert missing == []


@pytest.mark.parametrize("name", ["tailrace", *PACKAGES])
def test_a_package_lists_every_public_name_that_it_imports_or_defines(name: str) -> None:
    package = importlib.import_module(name)
    listed = set(getattr(package, "__all__", []))
    public: set[str] = set()
    for statement in source_of(name).body:
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("tailrace"):
            public.update(alias.asname or alias.name for alias in statement.names)
        elif isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            public.add(statement.name)
    assert sorted(each for each in public - listed if not each.startswith("_")) == []


def test_the_root_resolves_every_name_that_it_lists() -> None:
    exported = getattr(tailrace, "__all__", [])
    assert [name for name in exported if getattr(tailrace, name, None) is None] == []


def test_the_base_install_loads_neither_arrow_nor_numba() -> None:
    """`tailrace`, `tailrace.errors` and `tailrace.runtime` serve processes that installed no extra."""
    program = (
        "import sys, tailrace, tailrace.errors, tailrace.runtime\n"
        "print([name for name in ('pyarrow', 'numba', 'numpy', 'rocksdict', 'pyspark') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert found.stdout.strip() == "[]"
