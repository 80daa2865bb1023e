"""The files that a page takes together are one script: a name that stands in two of them stops all of it."""

import subprocess

import pytest

from rlviz.page.script import classic
from rlviz.page.widget import ALONE
from rlviz.runs import playground
from tests.page.programs import needs_node


@needs_node
@pytest.mark.parametrize(
    "files", [(*ALONE, "widget"), (*playground.FILES, "inspector", "search", "site")], ids=["notebook", "site"]
)
def test_no_name_is_declared_twice(files, tmp_path):
    (tmp_path / "whole.js").write_text(classic(*files), encoding="utf-8")
    done = subprocess.run(["node", "--check", str(tmp_path / "whole.js")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
