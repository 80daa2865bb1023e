"""The one rule of --out: a file is replaced only as rlviz wrote it; anybody else's stays, and a sentence says what to do."""

import shlex
from pathlib import Path

import pytest

from rlviz import GRPO, TrainSettings, train
from small_models.policies import load_policy

MAP = "map --replicas 2 --steps 1 --cells 1x1 --jobs 1 --out"
COMMANDS = {  # command without its file → the file
    "plot clip --out": "x.html",
    "plot clip  --out": "x.png",
    "playground --no-browser --out": "x.html",
    f"{MAP}": "x.png",
    "inspect run --out": "x.html",
    "diagnose run --out": "x.html",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    settings = TrainSettings(steps=2, num_prompts=2, group_size=2, evaluate_every=0, details_every=1)
    list(train(load_policy("chain", device="cpu"), "chain", GRPO, settings, out=folder))
    return folder


@pytest.mark.parametrize(("command", "name"), COMMANDS.items())
def test_a_file_of_others_stays_and_one_of_rlviz_gives_way(rlviz, command, name, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("run").symlink_to(run)
    out = Path(name)
    out.write_text("import rlviz  # years of work\n", encoding="utf-8")
    refused = rlviz(*shlex.split(command), name)
    assert refused.exit_code == 2, refused.output
    assert f"{name} is there already, and not as rlviz wrote it; name another --out, or" in refused.stderr
    assert out.read_text(encoding="utf-8") == "import rlviz  # years of work\n"
    out.unlink()
    for _ in range(2):
        written = rlviz(*shlex.split(command), name)
        assert written.exit_code == 0, written.output


def test_an_export_replaces_no_file(rlviz, tmp_path):
    out = tmp_path / "x.py"
    assert rlviz("export", "grpo", "--to", "trl", "--out", out).exit_code == 0
    written = out.read_bytes()
    again = rlviz("export", "dapo", "--to", "trl", "--out", out)
    assert again.exit_code == 2 and "x.py is there already, and may have changes of yours" in again.stderr
    assert out.read_bytes() == written


def test_a_table_beside_a_map_stays(rlviz, tmp_path):
    table = tmp_path / "m.csv"
    table.write_text("mine", encoding="utf-8")
    refused = rlviz(*shlex.split(MAP), tmp_path / "m.png")
    assert refused.exit_code == 2 and "m.csv is there already" in " ".join(refused.output.split())
    assert table.read_text(encoding="utf-8") == "mine"
