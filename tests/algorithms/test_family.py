"""An algorithm as a value: its names, what changes between two, docstrings, JSON and back, and what is refused."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import torch

import rlviz
from rlviz.algorithms import (
    ALGORITHMS,
    DAPO,
    DCPO,
    DPO,
    DUPO,
    GRPO,
    GRPO_PROCESS,
    GSPO,
    PPO,
    PPO_PENALTY,
    RELATIVES,
    SLOTS,
    changes,
    command_name,
    differences,
    family_table,
    find_algorithm,
    label,
    numbers,
    why,
)
from rlviz.algorithms.describe import from_json, to_json
from rlviz.algorithms.slots import numbers_in
from rlviz.pieces.bounds import FixedBounds
from rlviz.pieces.kl import KLInReward
from rlviz.pieces.surrogate import DualClip, SequenceMask
from rlviz.pieces.words import explained
from rlviz.types import Batch

NO_KL = replace(GRPO, kl=None)
WITH_SLOTS = [a for a in (*ALGORITHMS, GRPO_PROCESS) if a is not DPO]
ROOT = Path(__file__).parent.parent.parent


def test_the_file_states_the_same_differences():
    """What a reader of the file sees, the values, and `rlviz show --against` are held together."""
    for algorithm in WITH_SLOTS:
        stated = algorithm.from_grpo
        changed = {slot: label(new) for slot, (_, new) in changes(GRPO, algorithm).items()}
        assert list(stated) == list(changed)
        for row in differences(GRPO, algorithm)[: len(changed)]:
            assert stated[row.slot] == f"{changed[row.slot]}: {row.why}", row
    for relative in RELATIVES:  # a few of their slots; of pairs nothing is GRPO's
        for slot, reason in getattr(relative, "from_grpo", {}).items():
            assert reason.startswith(f"{label(getattr(relative, slot))}: ")


def test_a_reason_is_not_given_for_another_piece_than_it_speaks_of():
    mine = replace(DAPO, name="mine", bounds=FixedBounds(0.1, 0.1))
    rows = {row.slot: row.why for row in differences(GRPO, mine)}
    assert rows["bounds"] == why("bounds", mine.bounds)
    assert rows["select"] == {row.slot: row.why for row in differences(GRPO, DAPO)}["select"]


def test_differences_say_why_in_a_line_each():
    rows = differences(GRPO, DCPO)
    assert [row.slot for row in rows] == list(changes(GRPO, DCPO))
    assert (rows[0].before, rows[0].after) == ("1 − 0.2 … 1 + 0.2", "dynamic 0.16/0.2, ratio ≤ 10")
    for algorithm in (*ALGORITHMS, *RELATIVES):
        for row in differences(GRPO, algorithm):
            assert row.why[-1] == "." and "\n" not in row.why and "does not say" not in row.why, row
        for slot, piece in algorithm.slots().items():
            assert piece is None or piece.why == why(slot, piece)  # as data, for a docstring may be stripped
    assert [row.slot for row in differences(DAPO, DUPO)] == ["shape", "select"]
    assert [row.slot for row in differences(PPO, PPO_PENALTY)] == ["bounds", "surrogate", "kl", "controller"]
    assert [row.slot for row in differences(GRPO, DPO)] == ["all eight slots", "reward", "pair loss"]
    critic = differences(PPO, GRPO)[-1]
    assert (critic.slot, critic.after, critic.why) == ("models", "actor, reference", "does without critic and reward.")
    assert differences(DAPO, DAPO) == []


def test_a_piece_of_one_s_own_says_why_or_gives_its_first_paragraph():
    def mine(old_logp):
        """Return limits of my own.

        More about them.
        """

    assert why("bounds", mine) == "Return limits of my own."
    assert why("bounds", explained(why="they are mine.")(mine)) == "they are mine."
    assert "does not say" in why("bounds", lambda old_logp: None)


def test_the_table_has_a_row_an_algorithm_and_its_pieces_in_words():
    table = family_table([*ALGORITHMS, replace(GRPO, name="Mine")])
    assert list(table.index) == [*(a.name for a in ALGORITHMS), "Mine"]
    assert list(table.columns) == [*SLOTS, "beyond the slots", "models", "source"]
    assert table["models"].tolist()[:2] == ["actor, critic, reward, reference", "actor, critic, reward"]
    assert table.loc["DAPO", "select"] == "dynamic sampling, up to 10 × P" and table.loc["DAPO", "models"] == "actor"
    assert table.loc["DPO", "ratio"] == "–" and "σ" in table.loc["DPO", "beyond the slots"]


def test_the_readme_holds_the_table_as_it_is_generated():
    spec = importlib.util.spec_from_file_location("family_script", ROOT / ".ci" / "family.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.MARKED.findall(script.README.read_text(encoding="utf-8")) == [script.table()], (
        "run python .ci/family.py"
    )
    assert script.table().count("\n") == len(ALGORITHMS) + 2


def test_pieces_may_ask_for_more_by_name():
    seen = {}

    def surrogate(ratio, advantages, lower, upper, mask, old_logp):
        seen.update(mask=mask, old_logp=old_logp)
        return ratio * advantages

    mine = replace(NO_KL, surrogate=surrogate)
    logp = torch.zeros(1, 2, 3, dtype=torch.double)
    mask = torch.tensor([[[True, True, False], [True, False, False]]])
    mine.loss(logp, Batch(logp - 1, torch.ones_like(logp), mask))
    assert seen["mask"] is mask and (seen["old_logp"][mask] == -1).all()
    assert mine.asks_for("surrogate", "old_logp") and not mine.asks_for("surrogate", "logp")
    assert replace(GRPO, kl=KLInReward()).needs_reference and GRPO.needs_reference and not NO_KL.needs_reference
    assert replace(NO_KL, advantage=lambda rewards, ref_logp: rewards).needs_reference
    assert replace(NO_KL, advantage=lambda rewards, scale=2.0: rewards * scale)  # a default of one's own is left alone


def test_steps_on_padding_are_no_steps():
    # step rewards 1 and 0 on tokens, 9 on padding: mean ½, unbiased std √½, so ±.7071 as if the 9 were not there
    mask = torch.tensor([[[True, False], [True, False]]])
    rewards = torch.tensor([[[1.0, 9.0], [0.0, 9.0]]])
    got, _ = GRPO_PROCESS.advantages(rewards, mask, step_ends=torch.ones_like(mask))
    torch.testing.assert_close(got, torch.tensor([[[0.5**0.5, 0.0], [-(0.5**0.5), 0.0]]]), rtol=1e-5, atol=0)


def test_changes_names_exactly_the_slots_that_differ():
    wider = GRPO.with_parameters(eps_high=0.28)
    assert changes(GRPO, wider) == {"bounds": (FixedBounds(0.2, 0.2), FixedBounds(0.2, 0.28))}
    assert changes(GRPO, GRPO) == {}
    assert set(GRPO.slots()) == set(SLOTS)
    assert set(changes(GRPO, DPO)) == {"ratio", "bounds", "surrogate", "advantage", "kl", "aggregate", "select"}
    assert changes(DAPO, DUPO) == {"shape": (DAPO.shape, DUPO.shape), "select": (DAPO.select, DUPO.select)}


def test_json_and_back():
    for algorithm in (*ALGORITHMS, *RELATIVES, GRPO_PROCESS, NO_KL, GRPO.with_parameters(eps_high=0.5)):
        assert from_json(to_json(algorithm)) == algorithm


def test_names_are_found():
    assert find_algorithm("grpo") is find_algorithm("GRPO") is GRPO
    assert all(find_algorithm(a.name) is find_algorithm(command_name(a)) is a for a in (*ALGORITHMS, *RELATIVES))
    assert command_name(replace(GRPO, name="Dr.GRPO")) == "dr-grpo"


def test_parameters_that_belong_together_change_together():
    shorter = DAPO.with_parameters(max_length=4, cache=2)  # one by one, a cache of 4 would not fit into 4 tokens
    assert (shorter.shape.max_length, shorter.shape.cache) == (4, 2)
    assert DAPO.with_parameters(cache=2, max_length=4) == shorter
    assert DPO.with_parameters(beta=0.5).reward.beta == 0.5
    assert GRPO.with_parameters(eps=1e-4).advantage.eps == 1e-4


def test_the_numbers_of_an_algorithm():
    assert numbers(DPO) == {"beta": 0.1, "label_smoothing": 0.0}
    assert numbers(GSPO) == {"eps_low": 3e-4, "eps_high": 4e-4, "eps": 1e-6}
    both = SequenceMask(delta=0.5, surrogate=SequenceMask(delta=0.2, surrogate=DualClip(c=3.0)))
    assert numbers_in(both) == {"delta": 0.5, "c": 3.0}  # the outer one's where two share a name


def test_each_has_a_name_in_python():
    """An explorer's line to copy says that name."""
    for package, where in ((rlviz.algorithms, "rlviz/algorithms/__init__.py"), (rlviz, "rlviz/__init__.pyi")):
        constants = [getattr(package, name) for name in dir(package) if name.isupper()]
        for algorithm in (*ALGORITHMS, *RELATIVES):
            assert constants.count(algorithm) == 1, f"{where} has to import {algorithm.name}"
