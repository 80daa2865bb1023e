"""Run folders and arguments damaged at random: each is answered with one clear sentence, or correctly, and nothing is lost.

RLVIZ_DAMAGED=100 pytest tests/test_damage.py damages so many folders, and gives four times as many odd arguments, in place of 10.
"""

import inspect
import json
import os
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from rlviz import DAPO, DPO, GRPO, PairSettings, RunFolder, TrainSettings, diagnose, train
from rlviz.runs.inspector import inspect_run
from rlviz.study.comparison import Contender, compare, read_comparison
from rlviz.tabular import TableTask, train_table
from rlviz.training import find_task, resume
from small_models.pairs import Pair, make_pairs, read_pairs
from small_models.policies import build_policy, load_policy
from small_models.scorers import RewardModel, Scorer

pytestmark = pytest.mark.usefixtures("axes_stay")

STEPS = 3
FOLDERS = int(os.environ.get("RLVIZ_DAMAGED", "10"))
OFTEN = settings(
    max_examples=FOLDERS,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],  # a failure is short as it is, and shrinking it would take minutes
    suppress_health_check=list(HealthCheck),
)
PYTHON = (
    "'<'",
    "NoneType",
    "object is not",
    "__init__",
    "has no attribute",
    "unexpected keyword",
    "not iterable",
    "Error(",
)
ODD = [None, True, -1, 0, 1.5, 1e-320, float("nan"), float("inf"), 2**40, 10**30, "", "x", "x" * 100_000, b"x"]
ODD += [[], {}, [None], [[]], (1,), {"a": 1}, object(), len, ValueError]
ODD_JSON = [None, True, -1, 0, 1.5, 1e30, 10**30, "", "x", "x" * 100_000, "\ud800", [], {}, [None], [[1]], {"a": 1}]
ODD_TEXT = ["NaN", "Infinity", "1e999", "9" * 5000, "[" * 5000, '"\\x"', "'x'", "}"]


def sentence(error):
    """Return what an error says; fails where no user could act on it."""
    said = str(error)
    assert said and "\n" not in said and len(said) <= 700, said
    assert not any(word in said for word in PYTHON), said
    return said


def answer(call):
    """Return what a call returns, or the sentence with which it is refused."""
    try:
        return call()
    except (ValueError, OSError) as error:
        return sentence(error)


@pytest.fixture(scope="module")
def chain():
    return load_policy("chain", device="cpu")


@pytest.fixture(scope="module")
def pairs(chain):
    return make_pairs(chain, find_task("chain"), 8, seed=0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, chain, pairs):
    """A comparison of GRPO and DPO, and beside their runs one whose reward model is learned."""
    out = tmp_path_factory.mktemp("whole") / "both"
    few = TrainSettings(num_prompts=2, group_size=2, details_every=1, details_groups=1)
    list(compare([Contender("GRPO", GRPO, few)], seeds=1, amount=STEPS * 4, out=out, device="cpu"))
    of_pairs = PairSettings(steps=STEPS, batch_size=2, num_pairs=4, evaluate_every=1)
    list(train(load_policy("chain", device="cpu"), find_task("chain"), DPO, of_pairs, out=out / "dpo-seed0"))
    learned = replace(few, steps=STEPS, evaluate_every=STEPS, refresh_reward_every=2, checkpoint_every=1)
    reward = RewardModel(Scorer.of(chain), chain.tokenizer)
    list(
        train(
            load_policy("chain", device="cpu"),
            find_task("chain"),
            DAPO,
            learned,
            reward_model=reward,
            pairs=pairs,
            out=out / "learned-seed0",
        )
    )
    return out


def files_in(folder):
    """Return the path of each file but the locks, and what is in it."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def places(value, path=()):
    """Return the paths of all values within JSON."""
    found = [path]
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in list(inner)[:40]:
        found += places(part, (*path, name))
    return found


def with_value(text, draw):
    """Return JSON with one of its values replaced, or taken away."""
    value = json.loads(text)
    *above, last = draw(st.sampled_from([path for path in places(value) if path] or [(None,)]))
    inner = value
    for name in above:
        inner = inner[name]
    kind = draw(st.sampled_from(["put", "text", "delete"]))
    if last is None:
        return draw(st.sampled_from([json.dumps(odd) for odd in ODD_JSON] + ODD_TEXT))
    if kind == "delete":
        del inner[last]
        return json.dumps(value)
    inner[last] = "HERE" if kind == "text" else draw(st.sampled_from(ODD_JSON))
    return json.dumps(value).replace('"HERE"', draw(st.sampled_from(ODD_TEXT))) if kind == "text" else json.dumps(value)


def damage(folder, draw):
    """Damage one file of a folder; return what was done, for whoever reads a failure."""
    names = list(files_in(folder))
    name = draw(st.sampled_from([each for each in names if each.endswith((".json", ".jsonl"))] * 3 + names))
    file, data = folder / name, (folder / name).read_bytes()
    kind = draw(
        st.sampled_from(["value"] * 6 + ["cut", "flip", "insert", "encoding", "gone", "folder", "empty", "twice"])
    )
    where = draw(st.integers(0, max(len(data) - 1, 0)))
    if kind == "value" and name.endswith((".json", ".jsonl")):
        lines = data.decode().split("\n") if name.endswith(".jsonl") else [data.decode()]
        filled = [place for place, line in enumerate(lines) if line.strip()]
        if filled:
            line = draw(st.sampled_from(filled))
            lines[line] = with_value(lines[line], draw)
        file.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    elif kind in ("value", "cut"):
        file.write_bytes(data[:where])
    elif kind == "flip":
        file.write_bytes(data[:where] + bytes([data[where] ^ 1 << draw(st.integers(0, 7))]) + data[where + 1 :])
    elif kind == "insert":
        file.write_bytes(data[:where] + b"\n\0" + data[where:])
    elif kind == "encoding":
        file.write_bytes(data.decode("latin-1").encode("utf-16"))
    elif kind == "twice":
        file.write_bytes(data + data)
    else:
        file.unlink()
        if kind == "folder":
            file.mkdir()
        elif kind == "empty":
            file.touch()
    return f"{name}: {kind} at {where}"


def read_all_of(run):
    folder = RunFolder.open(run)
    return folder.config, folder.metrics, folder.records(), folder.samples, folder.missing_steps()


@OFTEN
@given(st.data())
def test_a_damaged_run_folder_is_read_right_or_refused_in_a_sentence(whole, tmp_path_factory, data):
    both = Path(shutil.copytree(whole, tmp_path_factory.mktemp("damaged") / "both"))
    done = damage(both, data.draw)
    run = both / (done.partition("/")[0] if "/" in done else "learned-seed0")
    before = files_in(both)
    answer(lambda: read_comparison([both]).table())
    answer(lambda: read_comparison([run], budget="seconds").table())
    answer(lambda: read_all_of(run))
    answer(lambda: inspect_run(run))
    answer(lambda: json.dumps(diagnose(run).as_json(), allow_nan=False))
    answer(lambda: read_pairs(run / "pairs.jsonl"))
    assert files_in(both) == before, done
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        went_on = answer(lambda: list(resume(run, steps=STEPS + 1, device="cpu")))
    told = [sentence(each.message) for each in warned]
    if isinstance(went_on, str):
        assert files_in(both) == before, f"{done}: refused ({went_on}), and yet something was written"
    elif not told:
        assert list(RunFolder.open(run).metrics["step"]) == list(range(1, STEPS + 2)), done
    shutil.rmtree(both.parent)


def with_odd(arguments):
    """Give one or two of these arguments an odd value."""
    names = st.lists(st.sampled_from(sorted(arguments)), min_size=1, max_size=2, unique=True)
    return names.flatmap(lambda chosen: st.fixed_dictionaries({name: st.sampled_from(ODD) for name in chosen}))


def defaults(call):
    """Return the names of what may be given by name."""
    return {name for name in inspect.signature(call).parameters if name not in ("self", "device")}


@settings(OFTEN, max_examples=4 * FOLDERS)
@given(st.data())
def test_odd_arguments_are_refused_in_a_sentence_or_work(pairs, tmp_path_factory, data):
    task, few = find_task("chain"), TrainSettings(steps=1, num_prompts=1, group_size=2, evaluate_every=0)
    trained = {"policy": None, "task": task, "algorithm": GRPO, "settings": few, "reward_model": None, "pairs": None}

    def one_step(**given):
        next(
            train(
                **{
                    **trained,
                    "policy": load_policy("chain", device="cpu"),
                    "out": tmp_path_factory.mktemp("odd") / "run",
                    **given,
                }
            )
        )

    def one_of_pairs(**given):
        own = {"algorithm": DPO, "settings": PairSettings(steps=1, batch_size=2, evaluate_every=0), "pairs": pairs}
        one_step(**{**own, **given})

    def begin(**given):
        run = compare(
            **{"contenders": [Contender("GRPO", GRPO, few)], "seeds": 1, "out": tmp_path_factory.mktemp("odd"), **given}
        )
        run.close()

    calls = {
        TrainSettings: defaults(TrainSettings),
        PairSettings: defaults(PairSettings),
        Contender: {"name", "algorithm", "settings"},
        Pair: {"prompt", "chosen", "rejected"},
        TableTask: defaults(TableTask),
        train_table: defaults(train_table),
        build_policy: defaults(build_policy),
        one_step: {*trained, "out"},
        one_of_pairs: {*trained, "out"},
        begin: defaults(compare),
    }
    call = data.draw(st.sampled_from(list(calls)))
    base = {Contender: {"name": "GRPO", "algorithm": GRPO}, Pair: {"prompt": "p", "chosen": "a", "rejected": "b"}}
    base |= {TableTask: {"success": (0.0, 1.0)}, train_table: {"algorithm": GRPO, "steps": 2}}
    given = data.draw(with_odd(calls[call]))
    answer(lambda: call(**{**base.get(call, {}), **given}))
