"""The repository itself: what a clone must hold, and what must not slip into it."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tailrace import errors

REPOSITORY = Path(__file__).parent.parent
TEXTS = {".py", ".md", ".toml", ".sh", ".yml", ".yaml", ".json", ".cc", ".lock", ""}
# With brackets, so that this file does not find itself.
FORBIDDEN = {
    "an unfinished thing": r"\b(T[O]DO|F[I]XME|X[X]X)\b",
    "a path of one machine": r"(?<![\w.])/(w[o]rk|r[o]ot|h[o]me)/\w|/t[m]p/w\b|/opt/w[h]eels",
    "a package index": r"(?i)(?<!no-emit-)\b(i[n]dex-url|e[x]tra-index)\b",
    "a retried test": r"pytest[-_]r[e]runfailures|--r[e]runs",
}
SAMPLES = ["# T|ODO later", "/r|oot/x", "'/w|ork/main'", "pip --i|ndex-url x", "--r|eruns 2"]


def repository_files() -> list[Path]:
    """What is committed or would be; a copy without git is taken as it lies there."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    if listing.returncode == 0 and listing.stdout:
        files = [REPOSITORY / line for line in listing.stdout.splitlines()]
    else:
        files = [path for path in REPOSITORY.rglob("*") if ".venv" not in path.parts]
    return [path for path in files if path.is_file() and path.suffix in TEXTS]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_holds(what: str) -> None:
    pattern = re.compile(FORBIDDEN[what])
    found = [
        f"{path.relative_to(REPOSITORY)}:{number}: {line.strip()[:100]}"
        for path in repository_files()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("sample", SAMPLES)
def test_what_is_forbidden_would_be_found(sample: str) -> None:
    assert any(re.search(pattern, sample.replace("|", "")) for pattern in FORBIDDEN.values())


@pytest.mark.parametrize("name", [
    "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "SECURITY.md",
    "Makefile", ".ci/run", "requirements.lock", "src/tailrace/py.typed",
    "docs/decisions/README.md", "docs/benchmarks/README.md",
])  # fmt: skip
def test_a_clone_holds(name: str) -> None:
    assert (REPOSITORY / name).exists()


def test_the_lock_covers_every_requirement_with_hashes() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [re.split(r"[\[<>=~! ]", line)[0] for line in project["dependencies"] + extras["core"] + extras["dev"]]
    blocks = re.split(r"\n(?=\S)", (REPOSITORY / "requirements.lock").read_text())
    locked = {block.split("==")[0].split("[")[0]: block for block in blocks if "==" in block}
    assert [name for name in wanted if name not in locked] == []
    assert [name for name, block in locked.items() if "--hash=sha256:" not in block] == []


def test_every_decision_is_listed_in_the_index() -> None:
    folder = REPOSITORY / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    assert [path.name for path in sorted(folder.glob("0*.md")) if f"({path.name})" not in index] == []


def test_every_link_to_a_file_leads_somewhere() -> None:
    broken = []
    for page in [path for path in repository_files() if path.suffix == ".md"]:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.relative_to(REPOSITORY)} -> {target}")
    assert broken == []


def test_every_kind_of_error_is_met_by_a_test() -> None:
    """Coverage of error paths: an error that no test names is one that nobody has seen."""
    tests = "\n".join(path.read_text() for path in (REPOSITORY / "tests").rglob("test_*.py"))
    names = {name for name, kind in errors.TailraceError.by_name.items() if kind.__module__ == "tailrace.errors"}
    unseen = sorted(name for name in names - {"LogError"} if not re.search(rf"\b{name}\b", tests))
    assert unseen == []
