"""Recorded runs: the committed files show what is said of them, and making one anew gives the same form."""

import gzip
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from rlviz import GRPO, TrainSettings, train
from rlviz.runs import recorded_run
from rlviz.runs.recordings import HERE, RECORDED, RECORDINGS, RealRun, record
from rlviz.settings import PairSettings

COURSE = Path(__file__).parents[2] / "notebooks"
REAL = {name: recording for name, recording in RECORDINGS.items() if isinstance(recording, RealRun)}
TRAINED = [name for name in RECORDINGS if name not in REAL]
EVERY = {name: json.loads(gzip.decompress((HERE / f"{name}.json.gz").read_bytes())) for name in RECORDINGS}


def run_of(name, step):
    return EVERY[name]["steps"][str(step)]["runs"][0]


def in_caption(name, step, words):
    """Return the number that stands behind these words in what is said of a step."""
    text = EVERY[name]["steps"][str(step)]["caption"].replace("−", "-")
    match = re.search(rf"{re.escape(words)} (-?\+?[\d.]+\d)", text)
    assert match, (words, text)
    return float(match[1])


def responses(name, step):
    return [response for group in run_of(name, step)["groups"] for response in group["responses"]]


@pytest.mark.parametrize("name", TRAINED)
def test_a_file_has_every_step_and_opens_at_the_first_with_tokens(name):
    data, recording = EVERY[name], RECORDINGS[name]
    settings, steps = recording.settings, recording.settings.steps
    assert data["run"]["at"] == [int(step) for step in data["steps"]] == list(range(1, steps + 1))
    assert data["run"]["names"] == [recording.algorithm.name]
    if isinstance(settings, PairSettings):
        assert data["run"]["tokens"] == [] and data["place"][0] == 1 and not run_of(name, 1)["groups"]
        return
    assert data["run"]["tokens"] == list(range(4, steps + 1, 4)) and data["place"][0] == 4
    assert all(len(group["responses"]) == settings.group_size for group in run_of(name, steps)["groups"])
    assert all(response["tokens"] for response in responses(name, 4))


def test_the_picture_has_responses_of_the_first_step_with_tokens_and_of_the_last():
    """Where nothing runs, too, one reads what became of the language; a run on pairs samples nothing."""
    first, last = recorded_run("happy").texts.split("\n\n")
    assert first.startswith("Step 5, Write one sentence about") and last.startswith("Step 60, Write one sentence about")
    for step, block in ((5, first), (60, last)):
        written = [" ".join(response["text"].split()) for response in responses("happy", step)]
        rows = [line.split(maxsplit=2) for line in block.splitlines()[1:]]
        assert len(rows) == 4 and all(text in written for _, _, text in rows)
    assert {reward for _, reward, _ in rows} == {"1.00"}
    assert recorded_run("happy").alt.endswith(last) and recorded_run("dpo").texts == ""
    heights = [Image.open(io.BytesIO(recorded_run(name).png)).height for name in ("happy", "dpo")]
    assert heights[0] > heights[1] + 200


def test_what_is_said_of_them_is_there_to_be_seen():
    held_out = "held-out accuracy"
    assert in_caption("grpo", 5, held_out) < 0.65 and in_caption("grpo", 80, held_out) > 0.85
    steps = EVERY["grpo"]["run"]["tokens"]
    assert all(in_caption("grpo", step, "clipped during its updates") == 0 for step in steps)
    assert in_caption("ppo", 5, held_out) < 0.6 and in_caption("ppo", 80, held_out) > 0.85
    assert in_caption("dpo", 5, held_out) < 0.6 and in_caption("dpo", 120, held_out) > 0.8
    assert -3 < in_caption("dpo", 120, "chosen") < 0 and in_caption("dpo", 120, "rejected") < -10
    assert in_caption("hacked", 10, held_out) > 0.6 and in_caption("hacked", 60, held_out) < 0.2
    assert in_caption("hacked", 1, "reward") < 0 and in_caption("hacked", 60, "reward") > 1.5


def test_there_is_a_small_file_for_each_and_recording_anew_gives_its_form():
    """Graphs of clipped tokens are there only where a rollout serves more than one update."""
    sizes = {file.name.removesuffix(".json.gz"): file.stat().st_size for file in HERE.glob("*.gz")}
    assert sizes.keys() == RECORDINGS.keys() and max(sizes.values()) < 200_000
    for updates in (1, 2):
        tiny = TrainSettings(steps=1, num_prompts=2, group_size=4, updates_per_rollout=updates, details_every=1)
        fresh = json.loads(gzip.decompress(record(replace(RECORDINGS["grpo"], settings=tiny))))
        ours, theirs = (
            data["steps"][step]["runs"][0]["groups"][0] for data, step in ((fresh, "1"), (EVERY["grpo"], "4"))
        )
        for part in (
            lambda of: of,
            lambda of: of["responses"][0],
            lambda of: of["others"][0],
            lambda of: of["numbers"],
        ):
            assert part(ours).keys() == part(theirs).keys()
        assert fresh["run"].keys() == EVERY["grpo"]["run"].keys() and fresh["place"][0] == 1
        clipped = [panel["title"] for panel in fresh["picture"]["picture"]["panels"][2:]]
        assert clipped == ["Clipped tokens"] * (updates - 1)
    assert not [name for name, data in EVERY.items() if '"Clipped tokens"' in json.dumps(data["picture"])]


def test_in_a_notebook_it_is_html_with_what_to_look_for():
    bundle, metadata = recorded_run("hacked")._repr_mimebundle_()
    assert "data-rlviz" in bundle["text/html"] and metadata["text/html"] == {RECORDED: "hacked"}
    assert bundle["text/plain"].startswith("A learned reward is hacked. Here a model scores")


def table_of(name):
    """Return a real run's rows of the committed table."""
    table = pd.read_csv(COURSE / "experiments/real_model.csv")
    task, _, has_kl = name.partition("-")
    return table[(table.task == task) & (table.beta == (0.2 if has_kl else 0)) & (table.seed == 0)]


@pytest.mark.parametrize("name", REAL)
def test_a_real_run_is_that_of_the_table(name):
    data, table = EVERY[name], table_of(name)
    assert data["run"]["at"] == list(table.step) == list(range(1, 61))
    for row in table.itertuples():
        assert in_caption(name, row.step, "reward") == pytest.approx(row.reward, abs=0.00501)
        paid = [float(response["reward"]) for response in responses(name, row.step)]
        assert len(paid) == 32 and sum(paid) / 32 == pytest.approx(row.reward, abs=0.005)
    assert REAL[name].seconds == pytest.approx(table.seconds.sum(), rel=0.1)


@pytest.mark.parametrize("name", REAL)
def test_a_real_run_has_tokens_at_its_steps_and_names_model_and_licence(name):
    data, recording = EVERY[name], REAL[name]
    assert tuple(data["run"]["tokens"]) == recording.token_steps and data["place"][0] == recording.token_steps[0]
    for step in data["run"]["at"]:
        with_tokens = [group for group in run_of(name, step)["groups"] if group["responses"][0]["tokens"]]
        most = recording.token_groups if step in recording.token_steps else 0
        assert bool(most) <= len(with_tokens) <= most
    assert all(
        words in recorded_run(name).caption for words in ("SmolLM2-135M-Instruct", "Apache-2.0", "seconds", "Xeon")
    )
    files = re.findall(r"\S+\.(?:jsonl|py)\b", recording.call)
    assert files and all((COURSE / "experiments/real_model" / file).is_file() for file in files)


def test_a_run_folder_is_packed_with_tokens_of_few_groups(tmp_path):
    settings = TrainSettings(steps=3, num_prompts=3, group_size=4, evaluate_every=0, details_every=1, details_groups=3)
    list(train("chain", "chain", GRPO, settings, out=tmp_path / "run"))
    recording = RealRun("a title", "what.", 1, "", token_steps=(2,), token_groups=1)
    data = json.loads(gzip.decompress(recording.record(tmp_path / "run")))
    assert data["run"]["tokens"] == [2] and data["run"]["at"] == [1, 2, 3]
    groups = [len(group["responses"][0]["tokens"]) > 0 for group in data["steps"]["2"]["runs"][0]["groups"]]
    assert len(groups) == 3 and sum(groups) == 1
