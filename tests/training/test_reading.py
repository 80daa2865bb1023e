"""A run folder from somebody else: every damage is one short sentence that names file, line and field."""

import json
import math
import os
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from rlviz import GRPO, RunFolder, TrainSettings, train
from rlviz.cli import app
from rlviz.runs.inspector import inspect_run
from rlviz.study.comparison import read_comparison
from rlviz.training import find_task, resume
from small_models.pairs import read_pairs
from small_models.policies import load_policy
from small_models.scorers import RewardModel

LONG = "x" * 100_000
TOKEN = ("groups", 0, "responses", 1, "tokens", 0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of three steps in a folder beside which a comparison.json may stand."""
    out = tmp_path_factory.mktemp("runs") / "grpo-seed0"
    settings = TrainSettings(steps=3, num_prompts=2, group_size=2, evaluate_every=3, details_every=1)
    for _ in train(load_policy("chain", device="cpu"), find_task("chain"), GRPO, settings, out=out):
        pass
    return out


@pytest.fixture
def run(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "grpo-seed0")


def put(value, path, new):
    """Set what lies at a path within JSON, or take it away (`...`)."""
    for name in path[:-1]:
        value = value[name]
    if new is ...:
        del value[path[-1]]
    else:
        value[path[-1]] = new


def damage(file, line, path, new):
    """Put `new` at a path of a JSON file, or of one line (from 1) of a .jsonl file; `()` is the whole of it."""
    lines = file.read_text().split("\n") if line else [file.read_text()]
    value = json.loads(lines[line - 1 if line else 0])
    if path:
        put(value, path, new)
    lines[line - 1 if line else 0] = json.dumps(value if path else new)
    file.write_text("\n".join(lines))


def refused(call):
    """Return the sentence with which a call is refused."""
    with pytest.raises(ValueError, match=r".") as caught:
        call()
    said = str(caught.value)
    assert "\n" not in said and len(said) < 700, said
    assert not any(word in said for word in ("'<'", "NoneType", "object is not", "__init__", "Traceback", "attribute"))
    return said


CONFIG = [
    ((), None, "must be an object with the keys task, policy, algorithm, settings; got null"),
    ((), [], "must be an object with the keys task, policy, algorithm, settings; got []"),
    (("task",), 5, "task must be a text; got 5"),
    (("task",), ..., "lacks task"),
    (("task",), LONG, "task must be 1 to 200 printable characters; got 'xxx"),
    (("task",), "a\x1b]0;b", r"task must be 1 to 200 printable characters; got 'a\x1b]0;b'"),
    (("policy",), None, "policy must be a text; got null"),
    (("algorithm",), None, "algorithm must be an object; got null"),
    (("algorithm", "name"), 5, "algorithm.name must be a text; got 5"),
    (("algorithm", "name"), LONG, "algorithm.name must be 1 to 200 printable characters"),
    (("algorithm", "piece"), ..., "algorithm lacks piece"),
    (("settings",), [], "settings must be an object; got []"),
    (("settings", "steps"), "40", "settings: steps must be a whole number; got '40'"),
    (("settings", "steps"), None, "settings: steps must be a whole number; got None"),
    (("settings", "steps"), 10**12, "settings: steps must be below 1,000,000,000; got 1000000000000"),
    (("settings", "group_size"), 2.5, "settings: group_size must be a whole number; got 2.5"),
    (("settings", "top_k"), 1.5, "settings: top_k must be a whole number; got 1.5"),
    (("settings", "evaluate_every"), 0.5, "settings: evaluate_every must be a whole number; got 0.5"),
    (("settings", "details_every"), 1.5, "settings: details_every must be a whole number; got 1.5"),
    (("settings", "seed"), True, "settings: seed must be a whole number; got True"),
    (("settings", "seed"), 2**63, "settings.seed is too large; got 9223372036854775808"),
    (("settings", "lr"), "fast", "settings: lr must be a number; got 'fast'"),
    (("settings", "lr"), -1, "settings: lr must be above 0; got -1"),
    (("settings", "lr"), 1e300, "settings.lr is too large; got 1e+300"),
    (("settings", "critic"), "both", "settings: critic must be one of separate, shared; got 'both'"),
    (("settings", "another"), 1, "settings: another is no setting of this version"),
    (("settings", "max_new_token"), 1, "max_new_token is no setting of this version; did you mean max_new_tokens?"),
    (("settings", LONG), 1, "is no setting of this version"),
]


@pytest.mark.parametrize(("path", "new", "sentence"), CONFIG, ids=lambda value: str(value)[:40])
def test_a_config_that_is_none(run, path, new, sentence):
    damage(run / "config.json", 0, path, new)
    for call in (lambda: resume(run, device="cpu"), lambda: inspect_run(run), lambda: read_comparison([run])):
        said = refused(call)
        assert f"{run}/config.json" in said and sentence in said and said.endswith("or train again")


PIECES = [
    (
        "bounds",
        {"piece": "rlviz.pieces.gae:torch"},
        "algorithm.bounds: 'rlviz.pieces.gae:torch' is not a piece of rlviz",
    ),
    ("bounds", {"piece": "rlviz.pieces.gae:Tensor"}, "is not a piece of rlviz"),
    ("bounds", {"piece": "rlviz.pieces.kl:Estimator"}, "is not a piece of rlviz"),
    ("bounds", {"piece": "os:system"}, "'os:system' is not a piece of rlviz"),
    ("bounds", {"piece": "rlviz.pieces.nothing:f"}, "this version of rlviz has no piece 'rlviz.pieces.nothing:f'"),
    ("bounds", {"piece": f"rlviz.pieces.kl:{LONG}"}, "this version of rlviz has no piece"),
    ("bounds", {"piece": ["rlviz.pieces.kl:k1"]}, "is not a piece of rlviz"),
    ("bounds", {"piece": "rlviz.pieces.bounds:FixedBounds", "eps": 1}, "FixedBounds has no 'eps' in this version"),
    (
        "bounds",
        {"piece": "rlviz.pieces.bounds:FixedBounds", "eps_low": "x"},
        "algorithm.bounds.eps_low must be a number; got 'x'",
    ),
    ("bounds", {"piece": "rlviz.pieces.bounds:FixedBounds", "eps_low": 2.0}, "eps_low must be above 0 and below 1"),
    ("bounds", 3, "algorithm.bounds must be a function; got 3"),
    ("bounds", ..., "algorithm: GroupPolicyGradient needs bounds in this version of rlviz"),
]


@pytest.mark.parametrize(("slot", "new", "sentence"), PIECES, ids=lambda value: str(value)[:50])
def test_only_what_rlviz_pieces_defines_is_a_piece(run, slot, new, sentence):
    damage(run / "config.json", 0, ("algorithm", slot), new)
    said = refused(lambda: resume(run, device="cpu", steps=5))
    assert f"{run}/config.json: algorithm" in said and sentence in said


ROWS = [
    ("metrics", 2, (), None, "line 2 must be an object"),
    ("metrics", 3, (), None, "line 3 must be an object"),
    ("metrics", 2, ("step",), "x", 'line 2: step must be a whole number; got "x"'),
    ("metrics", 2, ("step",), 1, "line 2: step must be above that of the line before (1); got 1"),
    ("metrics", 3, ("step",), 10**10, "line 3: step must be from 1 to 1,000,000,000; got 10000000000"),
    ("metrics", 2, ("entropy",), ..., "line 2 lacks entropy"),
    ("metrics", 2, ("reward",), LONG, 'line 2: reward must be a number; got "xxx'),
    ("metrics", 2, ("reward",), 1e200, "line 2: reward is too large; got 1e+200"),
    ("metrics", 2, ("tokens_sampled",), 10**30, "line 2: tokens_sampled is too large; got 1000000"),
    ("metrics", 2, ("rounds",), 1.5, "line 2: rounds must be a whole number; got 1.5"),
    ("metrics", 2, ("beta",), "x", 'line 2: beta must be a number or null; got "x"'),
    ("samples", 1, (), None, "line 1 must be an object"),
    ("samples", 1, ("groups",), ..., "line 1 lacks groups"),
    ("samples", 1, ("groups",), None, "line 1: groups must be a list; got null"),
    ("samples", 1, ("groups",), [], "line 1: groups must hold at least one group; got []"),
    (
        "samples",
        1,
        ("groups", 0, "responses"),
        [],
        "line 1: groups[0].responses must hold at least one response; got []",
    ),
    ("samples", 2, ("groups", 0, "prompt"), 7, "line 2: groups[0].prompt must be a text; got 7"),
    (
        "samples",
        2,
        ("groups", 0, "responses", 1, "length"),
        "<img>",
        'responses[1].length must be a whole number; got "<img>"',
    ),
    ("samples", 2, (*TOKEN, "push"), "x", 'line 2: groups[0].responses[1].tokens[0].push must be a number; got "x"'),
    ("samples", 2, (*TOKEN, "clipped"), 1, "tokens[0].clipped must be true or false; got 1"),
    ("samples", 2, (*TOKEN, "old_prob"), 1.5, "tokens[0].old_prob must be from 0 to 1; got 1.5"),
    ("samples", 2, (*TOKEN, "ratio"), -1, "tokens[0].ratio must be 0 or above; got -1"),
    ("samples", 3, (*TOKEN, "token"), ..., "line 3: groups[0].responses[1].tokens[0] lacks token"),
]


@pytest.mark.parametrize(("name", "line", "path", "new", "sentence"), ROWS, ids=lambda value: str(value)[:40])
def test_a_row_that_is_none(run, name, line, path, new, sentence):
    damage(run / f"{name}.jsonl", line, path, new)
    folder = RunFolder.open(run)
    calls = [folder.records, lambda: inspect_run(run)]
    if path and new != []:  # of pairs no groups are recorded
        calls.append(lambda: folder.metrics if name == "metrics" else folder.samples)
    for call in calls:
        said = refused(call)
        assert f"{run}/{name}.jsonl, line {line}" in said and sentence in said and said.endswith("or train again")


@pytest.mark.parametrize("name", ["metrics", "samples"])
def test_only_the_last_line_may_be_cut_short(run, name):
    file = run / f"{name}.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[:-30])
    assert [record.step for record in RunFolder.open(run).records()] == [1, 2]
    file.write_bytes(whole[:-1] + b"\n\0\0\0\0")  # blocks that a power cut left
    assert [record.step for record in RunFolder.open(run).records()] == [1, 2, 3]
    first, second, third, _ = whole.split(b"\n")
    for middle, sentence in ((second[:50], "it ends too early"), (b"", "it ends too early"), (b"\xff", "not UTF-8")):
        file.write_bytes(b"\n".join([first, middle, third, b""]))
        said = refused(RunFolder.open(run).records)
        assert f"{name}.jsonl, line 2 is not" in said and sentence in said
        assert file.read_bytes() == b"\n".join([first, middle, third, b""])


def test_numbers_that_were_not_finite_are_read_back_as_not_a_number(run):
    damage(run / "metrics.jsonl", 3, ("loss",), None)
    for name in ("old_prob", "new_prob", "ratio", "lower", "upper", "advantage", "objective", "weight", "push"):
        damage(run / "samples.jsonl", 3, (*TOKEN, name), None)
    last = RunFolder.open(run).records()[-1]
    token = last.groups[0].responses[1].tokens[0]
    assert math.isnan(last.loss) and math.isnan(token.push) and token.upper is None and last.value_loss is None
    assert np.isnan(RunFolder.open(run).metrics["loss"].iloc[-1])
    inspector = inspect_run(run)
    inspector.go(step=3, group=1, response=2, token=1)
    group, (tables,) = inspector.data["runs"][0]["groups"][0], inspector.data["tables"]
    place = len(group["responses"][0]["tokens"])
    assert "The run had diverged" in tables["said"][group["said"][place]]
    assert group["numbers"]["ratio"][place] == group["numbers"]["push"][place] == "not a number"
    damage(run / "metrics.jsonl", 3, ("rounds",), None)
    assert "rounds must be a whole number; got null" in refused(RunFolder.open(run).records)
    (run / "metrics.jsonl").write_text('{"step": 1, "loss": NaN}\n{"step": 2}\n')
    assert "line 1 is not JSON (invalid character at byte 20)" in refused(RunFolder.open(run).records)


FILES = ["config.json", "metrics.jsonl", "samples.jsonl", "summary.json", "../comparison.json"]
READERS = {  # file → what reads it
    "summary.json": lambda run: read_comparison([run]),
    "../comparison.json": lambda run: read_comparison([run.parent]),
}


def replaced(file, how):
    file.unlink(missing_ok=True)
    if how == "folder":
        file.mkdir()
    elif how == "device":
        file.symlink_to("/dev/zero")
    elif how == "pipe":
        os.mkfifo(file)
    else:
        file.write_bytes('{"a": "é",\n "b": 1}\n'.encode(how))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("folder", "must be a file; it is a folder"),
        ("device", "must be a file; it is a device or a pipe"),
        ("pipe", "must be a file; it is a device or a pipe"),
        ("utf-16", "is not UTF-8 text"),
        ("latin-1", "is not UTF-8 text"),
    ],
)
def test_something_else_in_place_of_a_file(run, name, how, sentence):
    replaced(run / name, how)
    said = refused(lambda: READERS.get(name, inspect_run)(run))
    assert name.removeprefix("../") in said and (sentence in said or "is not JSON" in said)


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("../comparison.json", "[]", "comparison.json must be an object with the keys contenders; got []"),
        ("../comparison.json", "{}", "comparison.json lacks contenders"),
        ("../comparison.json", '{"contenders": null}', "comparison.json: contenders must be an object; got null"),
        ("../comparison.json", '{"contenders": ["GRPO"]}', "comparison.json: contenders must be an object; got ["),
        ("summary.json", "null", "summary.json must be an object with the keys accuracy_before; got null"),
        ("summary.json", "{}", "summary.json lacks accuracy_before"),
        ("summary.json", '{"accuracy_before": null}', "summary.json: accuracy_before must be a number; got null"),
        ("summary.json", '{"accuracy_before": 1e999}', "summary.json holds a number that is too large"),
        ("summary.json", "", "summary.json is not JSON (it ends too early)"),
        ("summary.json", "[" * 100_000, "summary.json is nested too deeply to be read"),
    ],
)
def test_what_a_comparison_reads(run, name, text, sentence):
    (run / name).write_text(text)
    assert sentence in refused(lambda: READERS[name](run))
    result = CliRunner().invoke(app, ["compare", str(run.parent)])
    assert result.exit_code == 2 and sentence in " ".join(result.output.split()), result.output


def test_the_command_line_refuses_with_exit_code_2(run):
    for arguments in (["train", "--resume", str(run)], ["compare", str(run)]):
        damage(run / "config.json", 0, ("settings", "steps"), "40")
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 2 and "steps must be a whole number; got '40'" in " ".join(result.output.split())
        name = "y" * 5000
        result = CliRunner().invoke(app, [*arguments[:-1], name])
        assert result.exit_code == 2 and len(result.output) < 700


@pytest.mark.parametrize("value", [None, 5, [], b"run"])
def test_a_folder_that_is_no_path(value):
    assert refused(lambda: RunFolder.open(value)).startswith("path must be a path; got ")


def test_a_path_of_a_hundred_thousand_characters():
    with pytest.raises(FileNotFoundError) as caught:
        RunFolder.open(LONG)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("null", "line 1 must be an object with the keys prompt, chosen, rejected; got null"),
        ('{"prompt": "1=", "chosen": {}, "rejected": "2"}', "line 1: chosen must be a text; got {}"),
        ('{"prompt": "1=", "chosen": NaN, "rejected": "2"}', "line 1 is not JSON (invalid character at byte 27)"),
    ],
)
def test_pairs(tmp_path, line, sentence):
    (tmp_path / "pairs.jsonl").write_text(line + "\n")
    assert sentence in refused(lambda: read_pairs(tmp_path / "pairs.jsonl"))


@pytest.mark.parametrize("how", ["folder", "device", "pipe", "utf-16", "latin-1"])
def test_pairs_that_are_no_file_of_text(tmp_path, how):
    replaced(tmp_path / "pairs.jsonl", how)
    assert "pairs.jsonl" in refused(lambda: read_pairs(tmp_path / "pairs.jsonl"))


class TestModels:
    @pytest.mark.parametrize("asked", [3, 1_000_000, {"num_hidden_layers": 1_000_000}])
    def test_more_layers_than_the_weights_hold(self, run, asked):
        name = "text_config" if isinstance(asked, dict) else "num_hidden_layers"
        for folder in ("checkpoint", "reference"):
            damage(run / folder / "config.json", 0, (name,), asked)
            said = refused(lambda: load_policy(run / folder, device="cpu"))  # noqa: B023
            layers = asked if name == "num_hidden_layers" else 1_000_000
            assert said == f"{run}/{folder}/config.json asks for {layers} layers, and its weights hold 2"
        refused(lambda: resume(run, steps=5, device="cpu"))

    def test_a_stack_of_layers_that_is_never_finished(self, run):
        (run / "reference" / "model.safetensors").unlink()
        damage(run / "reference" / "config.json", 0, ("num_hidden_layers",), 1001)
        assert "asks for 1001 layers, and at most 1000 are loaded" in refused(lambda: load_policy(run / "reference"))

    def test_the_name_of_a_weight_allows_no_taller_stack(self, run):
        """A file of a hundred bytes can say that it holds any number of layers."""
        save_file({"model.layers.1000.norm.weight": torch.ones(1)}, run / "reference" / "model.safetensors")
        damage(run / "reference" / "config.json", 0, ("num_hidden_layers",), 1001)
        assert "asks for 1001 layers, and at most 1000 are loaded" in refused(lambda: load_policy(run / "reference"))

    @pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
    def test_a_device_in_place_of_a_file(self, run, name):
        replaced(run / "reference" / name, "device")
        said = refused(lambda: load_policy(run / "reference", device="cpu"))
        assert said == f"{run}/reference/{name} must be a file; it is a device or a pipe"

    def test_a_field_that_transformers_refuses_in_its_own_words(self, run):
        damage(run / "reference" / "config.json", 0, ("pad_token_id",), 1e30)
        said = refused(lambda: load_policy(run / "reference", device="cpu"))
        assert "cannot be read (its field pad_token_id is of another kind than it should be)" in said

    def test_half_a_character_is_refused_before_a_save_would_fail(self, run):
        damage(run / "checkpoint" / "tokenizer_config.json", 0, ("unk_token",), "\ud800")
        shutil.rmtree(run / "checkpoint.old", ignore_errors=True)
        said = refused(lambda: resume(run, steps=5, device="cpu"))
        assert "the checkpoint in" in said and "cannot be read (a text of it is not UTF-8)" in said

    def test_a_reward_model_of_other_sizes_costs_no_memory(self, tmp_path):
        RewardModel.of(load_policy("chain", device="cpu")).save(tmp_path)
        damage(tmp_path / "config.json", 0, ("vocab_size",), 10**12)
        assert "size mismatch" in refused(lambda: RewardModel.load(tmp_path, device="cpu"))
        damage(tmp_path / "config.json", 0, ("num_hidden_layers",), 10**6)
        assert "asks for 1000000 layers" in refused(lambda: RewardModel.load(tmp_path, device="cpu"))


def test_steps_that_are_left_out_are_known(run):
    folder = RunFolder.open(run)
    assert folder.missing_steps() == []
    rows = (run / "samples.jsonl").read_text().splitlines(keepends=True)
    (run / "samples.jsonl").write_text(rows[0] + rows[1])
    assert folder.missing_steps() == []  # of the newest step the samples may not be written yet
    (run / "samples.jsonl").write_text(rows[0] + rows[2])
    assert folder.missing_steps() == [2] and [record.step for record in folder.records()] == [1, 3]
    assert "GRPO lacks step 2: metrics.jsonl or samples.jsonl does not hold it." in inspect_run(run).caption
    metrics = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text(metrics[2])
    assert folder.missing_steps() == [1, 2]
    assert "GRPO lacks steps 1, 2: metrics.jsonl or samples.jsonl does not hold them." in inspect_run(run).caption
