"""The page that tells what lessons' ideas are called in TRL: its names, defaults and log columns against TRL itself."""

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "notebooks" / "in_your_config.md"
WITH_TRL, _, OTHERS = PAGE.read_text(encoding="utf-8").partition("## In four other frameworks")


def rows(text):
    return [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]


ROWS = rows(WITH_TRL)
TRL_IS_THIRD = [row for row in ROWS if len(row) >= 4 and row[0] not in {"slot", "lesson"} and set(row[0]) != {"-"}]
NO_FIELD = {
    "policy_gradients", "dupo_and_agents", "reward_hacking", "write_the_judge", "what_did_it_learn",
    "keeping_entropy",
}  # fmt: skip
FIELD = re.compile(r"`(\w+)=([^`]+)`")


@pytest.fixture(scope="module")
def trl():
    return pytest.importorskip("trl", reason="TRL is not installed: pip install 'rlviz[trl]'")


def configuration(trl, row):
    return trl.DPOConfig if "_preferences_and_dpo." in row[0] else trl.GRPOConfig


def test_every_lesson_with_a_field_has_a_row():
    """In the order of the lessons, each by its number; some are about no field of their own."""
    linked = [
        re.fullmatch(r"\[(\d\d)\]\(((\d\d)_(\w+))\.ipynb\)", row[0]) for row in TRL_IS_THIRD if row[0].startswith("[")
    ]
    assert linked == sorted(linked, key=lambda link: link[1]) and all(link[1] == link[3] for link in linked)
    lessons = {file.stem for file in PAGE.parent.glob("[0-9]*.ipynb")}
    assert {link[4] for link in linked} == {lesson[3:] for lesson in lessons} - NO_FIELD
    assert {link[2] for link in linked} <= lessons


def test_names_and_defaults_are_trls(trl):
    compared = 0
    for row in TRL_IS_THIRD:
        fields = {field.name: str(field.default) for field in dataclasses.fields(configuration(trl, row))}
        for name, default in FIELD.findall(row[2]):
            assert fields.get(name) == default, (row[1], name)
            compared += 1
    assert compared > 25


def test_log_columns_are_trls(trl):
    source = inspect.getsource(trl.GRPOTrainer) + inspect.getsource(trl.DPOTrainer)
    parts = [row[-1].split("verl ")[0] for row in TRL_IS_THIRD if row[-1].startswith("TRL")]
    named = [name for part in parts for name in re.findall(r"`([\w/]+)`", part)]
    assert len(named) > 15 and [name for name in named if f'"{name}"' not in source] == []


def test_symptoms_name_fields_of_trl(trl):
    text = (PAGE.parent / "symptoms.md").read_text(encoding="utf-8")
    known = {field.name for kind in (trl.GRPOConfig, trl.DPOConfig) for field in dataclasses.fields(kind)}
    parts = [
        part.partition("verl")[0].partition("rlviz")[0] for part in re.findall(r"Fields:\*\* TRL (.*?)\n- ", text, re.S)
    ]
    named = [name for part in parts for name in re.findall(r"`([a-z_0-9]+)", part)]
    values = {"dr_grpo", "dapo", "bnpo"}  # of loss_type
    assert len(named) > 40 and {name for name in named if name not in known | values} == set()


def test_each_name_of_four_other_frameworks_has_the_file_in_which_it_was_read():
    """What the names are was read in their repositories; here is only that none stands without its file."""
    (idea, *frameworks), _, *table = rows(OTHERS)
    assert idea == "idea" and frameworks == ["OpenRLHF", "SkyRL", "slime", "prime-rl"]
    read = re.findall(r"^- (\S+) ([\d.]+), commit ([0-9a-f]{7}): (every name|`\S+`) in `(\S+\.py)`$", OTHERS, re.M)
    assert {name for name, *_ in read} == set(frameworks) and len({line[2] for line in read}) == 4
    used, cells = set(), [(f, cell) for row in table for f, cell in zip(frameworks, row[1:], strict=True)]
    for framework, name in [(framework, name) for framework, cell in cells for name in re.findall("`(.+?)`", cell)]:
        lines = [line for line in read if line[0] == framework]
        (file,) = (line[4] for line in lines if line[3] == "every name" or name.startswith(line[3].strip("`")))
        used.add((framework, file))
    assert used == {(line[0], line[4]) for line in read} and len(table) > 20
