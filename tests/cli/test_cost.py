"""`rlviz cost`: tables, JSON and a picture of what models cost, and refusals in a sentence."""

import json

import pytest

COST = ["cost", "--num-prompts", "2", "--group-size", "2", "--repeats", "1", "--device", "cpu"]


def test_cost_as_tables_and_as_a_picture(rlviz, tmp_path):
    result = rlviz(*COST, "--out", tmp_path / "cost.png")
    assert result.exit_code == 0, result.output
    for words in ("137,536", "134,529", "Memory at the peak of an update", "DPO", "Seconds"):
        assert words in result.output
    tables = [
        [cell.strip() for cell in line.strip("│").split("│")] for line in result.output.splitlines() if "│" in line
    ]
    first_in = {(row[0], row[1]) for row in tables if len(row) == 6}
    assert {("actor", "GRPO"), ("reference", "GRPO")} <= first_in
    held = {row[0]: row[2] for row in tables if len(row) == 6 and row[2].endswith("B") and row[1].isdigit()}
    # weights, gradients and two moments of 137,536 float32, the weights of a reference or none; of DPO as of GRPO
    assert (held["GRPO"], held["GRPO, no KL"], held["DPO"]) == ("2.75 MB", "2.2 MB", "2.75 MB")
    assert (tmp_path / "cost.png").read_bytes().startswith(b"\x89PNG")


def test_cost_as_json(rlviz):
    result = rlviz(*COST, "--updates", 2, "--format", "json")
    rows = json.loads(result.output)
    assert [row["name"] for row in rows][::7] == ["GRPO", "DPO"]
    assert rows[0]["bytes_to_grpo"] == 1 and rows[0]["responses"] == 4
    assert rows[3]["models"][1]["parameters"] == 134529
    for row in rows:  # of one round each number is what was measured, not a median
        assert row["step_seconds"] == pytest.approx(row["rollout_seconds"] + 2 * row["update_seconds"])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--group-size", "3"], "group_size must be even and at least 2"),
        (["--out", "cost.gif"], "out must end in .png, .svg, .pdf; got cost.gif"),
        (["--task", "chian"], "chain"),
    ],
)
def test_cost_refuses_in_a_sentence(rlviz, given, words):
    result = rlviz("cost", *given)
    assert result.exit_code == 2 and words in result.output and "Traceback" not in result.output
