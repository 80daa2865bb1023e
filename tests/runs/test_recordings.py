"""Recorded runs: the committed files show what is said of them, and making them anew gives the same form."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from rlviz.runs import recordings
from rlviz.runs.record import PLANS, SHADES, WATCHED, as_data, recorded, write
from rlviz.runs.recordings import HERE, RECORDINGS, packed, read
from rlviz.settings import PairSettings
from rlviz.training import TrainSettings, train

pytestmark = pytest.mark.usefixtures("axes_stay")

EVERY = {name: read(name) for name in RECORDINGS}


def groups(name):
    return [group for step in EVERY[name]["steps"] for group in step["groups"]]


def responses(name):
    return [response for group in groups(name) for response in group["responses"]]


def accuracy(name, step):
    """The held-out accuracy measured last at a step, as it is said."""
    return float(EVERY[name]["steps"][step - 1]["said"].split("held-out accuracy ")[1][:4])


def clipped(name):
    """Per cent of tokens whose gradient was cut, below and above the limits, of every step."""
    words = [step["said"].split("clipped ")[1].replace("%", "").split() for step in EVERY[name]["steps"]]
    return np.array([[float(row[0]), float(row[3])] for row in words])


def test_there_is_a_file_for_each_and_none_is_large():
    assert set(PLANS) == set(RECORDINGS) == {file.name.removesuffix(".json.gz") for file in HERE.glob("*.gz")}
    assert max(len(packed(name)) for name in RECORDINGS) < 60_000
    with pytest.raises(KeyError):
        packed("../setting")


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_file_is_whole_and_says_what_its_plan_says(name):
    data, plan = EVERY[name], PLANS[name]
    assert (data["title"], data["look"], data["call"]) == (RECORDINGS[name].title, RECORDINGS[name].look, plan.call)
    assert [step["step"] for step in data["steps"]] == list(range(1, plan.settings.steps + 1))
    sizes = {len(group["responses"]) for group in groups(name)}
    assert sizes == (set() if isinstance(plan.settings, PairSettings) else {plan.settings.group_size})
    for response in responses(name):
        assert len(response["tokens"]) == len(response["push"])
        assert max(map(abs, response["push"])) <= SHADES
        assert all(0 <= place < len(response["tokens"]) for place in response["clipped"])
        if getattr(plan.algorithm, "kl", None) is None:  # else the KL term pushes on
            assert not any(response["push"][place] for place in response["clipped"])


def test_what_is_said_of_them_is_there_to_be_seen():
    assert accuracy("grpo", 5) < 0.65 and accuracy("grpo", 80) > 0.85
    assert not clipped("grpo").any()
    assert clipped("grpo-8").sum(1).mean() > 0.5
    for group in groups("dapo"):
        if len({response["reward"] for response in group["responses"]}) == 1:
            assert not any(push for response in group["responses"] for push in response["push"])
    assert accuracy("dcpo-rare", 10) < 0.2 and accuracy("dcpo-rare", 30) > 0.9
    assert all(len(one["clipped"]) in (0, len(one["tokens"])) for one in responses("gspo-experts"))
    assert clipped("gspo-experts")[:10].sum(1).mean() > 50
    assert accuracy("gspo-experts", 60) > 0.85
    assert accuracy("ppo", 5) < 0.6 and accuracy("ppo", 80) > 0.85
    assert accuracy("dpo", 5) < 0.6 and accuracy("dpo", 120) > 0.8
    gains = re.search(r"chosen −([\d.]+), rejected −([\d.]+)\.$", EVERY["dpo"]["steps"][-1]["said"])
    assert gains and float(gains[1]) < 3 and float(gains[2]) > 10
    assert accuracy("hacked", 10) > 0.6 and accuracy("hacked", 60) < 0.2
    first, last = (float(EVERY["hacked"]["steps"][place]["said"].split()[1].strip(",")) for place in (0, -1))
    assert first < 0 and last > 1.5


def form(value):
    """The keys and types of data, a list's by its first item."""
    if isinstance(value, dict):
        return {key: form(part) for key, part in value.items()}
    return [form(part) for part in value[:1]] if isinstance(value, list) else type(value)


def test_recording_a_tiny_run_gives_the_form_of_the_files(tmp_path, monkeypatch):
    plan = PLANS["grpo-8"]
    tiny = replace(plan, settings=replace(plan.settings, steps=5, num_prompts=3, group_size=4))
    data = recorded(tiny, title="", look="")
    kept = EVERY["grpo-8"]
    for step in kept["steps"]:
        for group in step["groups"]:
            for response in group["responses"]:
                response["clipped"] = []
    for response in data["steps"][0]["groups"][0]["responses"]:
        response["clipped"] = []
    assert form(json.loads(json.dumps(data))) == form(kept)
    monkeypatch.setitem(PLANS, "grpo-8", tiny)
    monkeypatch.setattr(recordings, "HERE", tmp_path)
    first = write("grpo-8", tmp_path).read_bytes()
    assert read("grpo-8")["steps"][4]["step"] == 5
    assert write("grpo-8", tmp_path).read_bytes() == first


def test_the_lines_are_the_run_s_numbers():
    records = list(train("chain", "grpo", TrainSettings(steps=4, num_prompts=3, group_size=4, **WATCHED)))
    bound = as_data(records, title="", look="", call="")["curves"]["data"]
    assert bound["r0_reward"] == [record.reward for record in records] and bound["r0_reward_at"] == [1, 2, 3, 4]
    assert not any(name.startswith("r1_") for name in bound)  # so much as was played, which the page makes
