"""rlviz takes the versions that somebody has, and `constraints.txt` locks those that are tested together."""

import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
DIRECT = [Requirement(line) for lines in (PROJECT["dependencies"], *EXTRAS.values()) for line in lines]
LOCKED = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
LOCK = [Requirement(line) for line in LOCKED if not line.startswith("#")]
OUTLETS = (".ci", ".github/workflows", ".binder", ".devcontainer")
SYSTEMS = {"linux": ("posix", "Linux"), "darwin": ("posix", "Darwin"), "win32": ("nt", "Windows")}


def marked(requirement, python, system):
    """Whether a line holds on one Python and system."""
    names = "python_version", "python_full_version", "sys_platform", "os_name", "platform_system"
    values = python, f"{python}.9", system, *SYSTEMS[system]
    environment = default_environment() | dict(zip(names, values, strict=True))
    return requirement.marker is None or requirement.marker.evaluate(environment)


def pins(name, python="3.12", system="linux"):
    """Return the lines that the lock has for a package on one Python and system."""
    same = [line for line in LOCK if canonicalize_name(line.name) == canonicalize_name(name)]
    return [line for line in same if marked(line, python, system)]


def test_no_range_has_an_upper_end():
    # a cap takes the newer torch away from a machine that has one; each needs a known break
    assert [str(r) for r in DIRECT if any(s.operator not in (">=",) for s in r.specifier)] == []


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13", "3.14"])
def test_the_lock_has_one_version_of_everything_direct_within_its_range(python, system):
    for requirement in DIRECT:
        if requirement.name != "rlviz" and marked(requirement, python, system):
            (pin,) = pins(requirement.name, python, system)
            assert str(pin.specifier).removeprefix("==") in requirement.specifier, requirement


def test_only_torch_comes_from_another_index_than_the_usual_one():
    """Of two indexes pip takes the higher version, of whatever name: who can upload to one could replace any package."""
    files = [file for name in OUTLETS for file in sorted((ROOT / name).iterdir()) if file.is_file()]
    texts = {file.name: file.read_text(encoding="utf-8") for file in (ROOT / "README.md", *files)}
    assert [name for name, text in texts.items() if re.search(r"extra.index.url", text, re.I)] == []
    (version,) = (str(pin.specifier) for pin in pins("torch"))
    alone = f"--no-deps --index-url https://download.pytorch.org/whl/cpu torch{version}"
    others = {name for name, text in texts.items() if re.sub(re.escape(alone), "", text).count("--index-url")}
    assert others == {"run"}  # which takes torch alone, in the lock's version
    assert '--no-deps --index-url "$TORCH_INDEX" "$(grep \'^torch==\' constraints.txt)"' in texts["run"]
    assert {name for name, text in texts.items() if alone in text} >= {"README.md", "site.yml", "postBuild"}


@pytest.mark.parametrize("file", sorted((ROOT / ".github" / "workflows").iterdir()), ids=lambda file: file.name)
def test_a_workflow_pins_its_actions_and_runs_nothing_beside_a_token_that_writes(file):
    workflow, _, body = file.read_text(encoding="utf-8").partition("\njobs:\n")
    head, *jobs = re.split(r"(?m)^  (?=\w+:)(?!.*\[)", body)
    assert not head.strip() and jobs and "permissions:" in workflow and "write" not in workflow
    for job in jobs:
        for action in re.findall(r"uses: (.*)", job):
            assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action)
        assert not ("write" in job and ("run:" in job or "checkout" in job))


def test_the_lock_is_in_the_source_distribution(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (archive,) = tmp_path.glob("rlviz-*.tar.gz")
    with tarfile.open(archive) as files:
        assert any(re.fullmatch(r"rlviz-[^/]*/constraints\.txt", name) for name in files.getnames())
