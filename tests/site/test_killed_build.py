"""A build that is stopped or killed: the earlier site stays, and no hidden folder does once the next build is over."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rlviz.site import build
from rlviz.site.html import File

ENDLESS = """
import sys, time
from rlviz.site import build
from rlviz.site.html import File

def files(course):
    yield File("index.html", "half")
    print("writing", flush=True)
    time.sleep(600)

build.files = files
sys.argv = ["rlviz", "site", "--out", "site"]
from rlviz.cli import main
main()
"""


@pytest.fixture
def earlier(tmp_path, monkeypatch):
    """Return a folder with a site in it, of one page."""
    monkeypatch.setattr(build, "files", lambda course: [File("index.html", "whole")])
    build.build(tmp_path / "site", Path())
    return tmp_path


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_build_leaves_the_earlier_site_and_the_next_one_nothing_hidden(earlier, number):
    with subprocess.Popen([sys.executable, "-c", ENDLESS], cwd=earlier, stdout=subprocess.PIPE, text=True) as process:
        assert "writing" in next(iter(process.stdout))
        process.send_signal(number)
        code = process.wait(60)
    assert code == (-9 if number == signal.SIGKILL else 128 + number)
    assert (earlier / "site" / "index.html").read_text() == "whole"
    assert (names(earlier) == ["site"]) == (number != signal.SIGKILL)
    build.build(earlier / "site", Path())
    assert names(earlier) == ["site"]


def test_a_build_killed_between_its_two_renames_has_lost_nothing(earlier, monkeypatch):
    os.replace(earlier / "site", earlier / ".site.old")

    def full(course):
        raise OSError(28, "No space left on device")
        yield

    monkeypatch.setattr(build, "files", full)
    with pytest.raises(OSError, match="No space"):
        build.build(earlier / "site", Path())
    assert (earlier / "site" / "index.html").read_text() == "whole" and names(earlier) == ["site"]
