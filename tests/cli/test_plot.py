"""`rlviz plot NAME`: the explorer's own picture in a file, every slider an option, every mistake a sentence."""

import re
from pathlib import Path

import numpy as np
import pytest
from click import unstyle
from PIL import Image
from typer.testing import CliRunner

from rlviz import pictures
from rlviz.algorithms import DAPO, DCPO
from rlviz.cli import app, plot
from rlviz.pictures.arguments import Arguments
from rlviz.pictures.base import new_figure, save_figure
from rlviz.pictures.catalogue import EXPLORERS, find_explorer
from rlviz.pictures.clip import explore_clip

runner = CliRunner()


def test_the_names_in_the_help_are_the_explorers():
    files = Path(pictures.__file__).parent.glob("*.py")
    assert {file.stem for file in files if "= explorer(" in file.read_text(encoding="utf-8")} == set(EXPLORERS)
    for arguments in (["plot"], ["plot", "--help"], ["plot", "-h"]):
        result = runner.invoke(app, arguments)
        assert result.exit_code == 0
        assert all(name in result.output for name in EXPLORERS)


def drawn(name, *arguments, out):
    """Draw a picture by the command line; return what it says of it."""
    result = runner.invoke(app, ["plot", name, *arguments, "--out", str(out)])
    assert result.exit_code == 0, result.output
    return result.output.removeprefix(f"{out}: ").strip()


def help_of(name):
    """Return what the help of a picture says, as one line without the frame."""
    result = runner.invoke(app, ["plot", name, "--help"], env={"COLUMNS": "400"})
    assert result.exit_code == 0, result.output
    return " ".join(unstyle(result.output).replace("│", " ").split())


def test_the_picture_is_the_explorer_s(tmp_path):
    out = tmp_path / "c.png"
    words = drawn("clip", "--algorithm", "dcpo", "--eps-high", ".5", "--beside", "dapo", out=out)
    explorer = explore_clip(DCPO, eps_high=0.5, beside=(DAPO,))
    assert words == explorer.caption
    again = tmp_path / "again.png"
    save_figure(explorer.figure(), again)
    np.testing.assert_array_equal(np.asarray(Image.open(out)), np.asarray(Image.open(again)))
    assert Image.open(out).info["Description"] == words
    # 10 × 5.04 inches at 150 dots: 4.4 of graphs, the title, and what is on show
    assert Image.open(out).size == (1500, 756)


def test_small_multiples_take_the_options_too(tmp_path):
    named = {label: {**setting, "old_prob": 0.3} for label, setting in find_explorer("clip").spec.named.items()}
    words = drawn("clip", "--small-multiples", "--old-prob", ".3", out=tmp_path / "c.png")
    for label, setting in named.items():
        assert f"{label}: {explore_clip(**setting).caption}" in words
    assert Image.open(tmp_path / "c.png").size[0] == 150 * (3.8 * len(named) + 0.4)  # inches: a column for each


@pytest.mark.parametrize(("kind", "start"), [("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_a_picture_is_a_file_of_the_kind_that_its_name_says(kind, start, tmp_path):
    drawn("process", out=tmp_path / f"deep/x.{kind}")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == [f"x.{kind}"]
    assert (tmp_path / f"deep/x.{kind}").read_bytes().startswith(start)


@pytest.mark.parametrize("name", EXPLORERS)
def test_every_argument_can_be_said_on_the_command_line(name, tmp_path, monkeypatch):
    """Each option, given its own default as the help has it, is read back as that."""
    read, options, text = [], [], help_of(name)
    monkeypatch.setattr(plot, "on_paper", lambda spec, arguments, several: (read.append(arguments), ""))
    monkeypatch.setattr("rlviz.page.style.save_figure", lambda *_, **__: None)
    spec = find_explorer(name).spec
    for argument in spec.controls:
        flag, default = f"--{argument.replace('_', '-')}", spec.signature.parameters[argument].default
        assert f"{flag} " in text
        if default is not None and default != ():
            options += [flag, re.search(rf"{flag} [<\[].*?\[default: (.*?)\]", text)[1]]
    drawn(name, *options, out=tmp_path / "x.svg")
    assert len(read[0]) == len(options) / 2
    assert Arguments(spec).to_values(read[0]) == Arguments(spec).default_values


def test_a_picture_that_cannot_be_written_leaves_the_old_one(tmp_path):
    class Broken(type(new_figure(1, 1))):
        def savefig(self, *arguments, **options):
            raise OSError(28, "No space left on device")

    target = tmp_path / "x.png"
    target.write_bytes(b"the old one")
    with pytest.raises(OSError, match="No space"):
        save_figure(Broken(figsize=(1, 1)), target)
    assert target.read_bytes() == b"the old one"
    assert [path.name for path in tmp_path.iterdir()] == ["x.png"]
