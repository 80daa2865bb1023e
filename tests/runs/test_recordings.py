"""Recorded runs: the committed files show what is said of them, and making one anew gives the same form."""

import gzip
import json
import re
from dataclasses import replace

import pytest

from rlviz.runs import recorded_run
from rlviz.runs.recordings import HERE, RECORDINGS, record
from rlviz.settings import PairSettings

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


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_file_has_every_step_and_opens_at_the_first_with_tokens(name):
    data, recording = EVERY[name], RECORDINGS[name]
    settings, steps = recording.settings, recording.settings.steps
    assert data["run"]["at"] == [int(step) for step in data["steps"]] == list(range(1, steps + 1))
    assert data["run"]["names"] == [recording.algorithm.name]
    if isinstance(settings, PairSettings):
        assert data["run"]["tokens"] == [] and data["place"][0] == 1 and not run_of(name, 1)["groups"]
        return
    assert data["run"]["tokens"] == list(range(4, steps + 1, 4)) and data["place"][0] == 4
    sizes = {len(group["responses"]) for step in (1, 4, steps) for group in run_of(name, step)["groups"]}
    assert sizes == {settings.group_size}
    assert all(response["tokens"] for response in responses(name, 4))


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
    sizes = {file.name.removesuffix(".json.gz"): file.stat().st_size for file in HERE.glob("*.gz")}
    assert sizes.keys() == RECORDINGS.keys() and max(sizes.values()) < 200_000
    recording = RECORDINGS["grpo"]
    tiny = replace(recording.settings, steps=4, num_prompts=3, group_size=4)
    fresh = json.loads(gzip.decompress(record(replace(recording, settings=tiny))))
    ours, theirs = (data["steps"]["4"]["runs"][0]["groups"][0] for data in (fresh, EVERY["grpo"]))
    for part in (lambda of: of, lambda of: of["responses"][0], lambda of: of["others"][0], lambda of: of["numbers"]):
        assert part(ours).keys() == part(theirs).keys()
    assert fresh["run"].keys() == EVERY["grpo"]["run"].keys() and fresh["place"][0] == 4


def test_in_a_notebook_it_is_html_with_what_to_look_for():
    bundle = recorded_run("hacked")._repr_mimebundle_()
    assert "data-rlviz" in bundle["text/html"]
    assert bundle["text/plain"].startswith("A learned reward is hacked. Here a model scores")
