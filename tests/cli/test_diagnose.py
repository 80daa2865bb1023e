"""`rlviz diagnose`: text for people, JSON for programs, a comparison's runs one by one, refusals in a sentence."""

import json
import shutil
from pathlib import Path

import pytest

from rlviz import DPO, GRPO, PairSettings, TrainSettings, train
from small_models.policies import load_policy

ROOT = Path(__file__).parents[2]
NAMES = set("finding step number setting lesson grade rule usually advice symptom run follows".split())


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return the folder of a run of eight steps with one update each."""
    out = tmp_path_factory.mktemp("diagnosed") / "run"
    settings = TrainSettings(steps=8, num_prompts=4, group_size=4, evaluate_every=0, details_every=0)
    for _ in train(load_policy("chain", device="cpu"), "chain", GRPO, settings, out=out):
        pass
    return out


def test_text_says_what_was_seen_what_to_try_and_what_to_read(rlviz, run):
    result = rlviz("diagnose", run)
    assert result.exit_code == 0, result.output
    text = " ".join(result.output.split())
    for words in ("GRPO on chain, 8 steps:", "most rules need 20", "Note: Every ratio is 1", "Meaning: With one update",
                  "Setting: updates_per_rollout.", "Lesson: notebooks/02_the_ratio"):  # fmt: skip
        assert words in text


def test_json_is_a_list_of_objects(rlviz, run):
    result = rlviz("diagnose", run, "--format", "json")
    assert result.exit_code == 0
    rows = json.loads(result.output)
    assert all(set(row) == NAMES for row in rows)
    (one,) = [row for row in rows if row["rule"] == "ratio_one"]
    assert one["setting"] == "updates_per_rollout" and one["step"] == 1 and abs(one["number"]) < 1e-4
    assert (ROOT / one["lesson"]).is_file()


def test_a_run_of_pairs_with_nothing_unusual(rlviz, tmp_path):
    out, settings = tmp_path / "dpo", PairSettings(steps=3, num_pairs=8, batch_size=4, evaluate_every=0)
    for _ in train(load_policy("chain", device="cpu"), "chain", DPO, settings, out=out):
        pass
    assert rlviz("diagnose", out, "--format", "json").output == "[]\n"
    assert "3 steps: nothing unusual; most rules need 20." in " ".join(rlviz("diagnose", out).output.split())


def test_each_run_of_a_comparison_and_no_word_of_its_folders_is_obeyed(rlviz, run, tmp_path):
    """Rich's own markup is shown as it is, and a terminal gets no escape sequence."""
    folders = [tmp_path / name for name in ("[red]x[bold]", "bell\x07 \x1b[31mred")]
    for place, folder in enumerate(folders):
        config = json.loads((shutil.copytree(run, folder) / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "task": f"[link=http://x]{place}[/link]"}))
    begun = shutil.copytree(run, tmp_path / "c-seed0")
    (begun / "metrics.jsonl").write_text("")  # which another process has just begun
    (tmp_path / "comparison.json").write_text('{"contenders": {}}')
    rows = json.loads(rlviz("diagnose", tmp_path, "--format", "json").output)
    assert {row["run"] for row in rows} == set(map(str, folders))
    result = rlviz("diagnose", tmp_path)
    assert result.exit_code == 0, result.output
    assert "[red]x[bold]" in result.output and "[link=http://x]0[/link]" in result.output
    assert "\x1b" not in result.output and "\x07" not in result.output
