"""`rlviz algorithms` and `show`: tables and pages, for people and for programs."""

import json

from rlviz.algorithms import ALGORITHMS, GRPO, RELATIVES, command_name


def test_algorithms_lists_the_family_and_the_relatives_apart(rlviz):
    for options, members, words in (
        ((), ALGORITHMS, "overlong punishment from 12 to 16 tokens"),
        (("--relatives",), RELATIVES, "ratio ≤ 5"),
    ):
        table = rlviz("algorithms", *options).output
        first = [line.split("│")[1].strip() for line in table.splitlines() if line.startswith("│")]
        assert [name for name in first if name][1:] == [command_name(one) for one in members if one is not GRPO]
        assert words in table and "rlviz show dapo --against grpo" in table
    assert "clipped weight" in rlviz("show", "cispo", "--against", "grpo").output
    assert "def soft_gate(ratio, advantages, lower, upper" in rlviz("show", "sapo").output


def test_against_another_there_is_a_line_a_slot(rlviz):
    output = rlviz("show", "dapo", "--against", "grpo").output
    lines = [line for line in output.splitlines() if line.startswith("│")]
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]
    assert [row[0] for row in cells] == ["bounds", "kl", "aggregate", "shape", "select"]
    assert output.index("As mathematics") < output.index("«(1 / Σ_j |o_j|)»") < output.index("def fixed_bounds")
    assert all(len(row) == 4 and row[3].endswith(".") for row in cells)
    answer = json.loads(rlviz("show", "dupo", "--against", "dapo", "--format", "json").output)
    rows = answer["differences"]
    assert any(line.endswith("R ← «answer·correct + format·well_formed»") for line in answer["formulas"])
    assert (answer["algorithm"], answer["against"]) == ("DUPO", "DAPO") and "+ " in answer["page"]
    assert [(row["slot"], row["before"], row["after"]) for row in rows] == [
        ("shape", "overlong punishment from 12 to 16 tokens", "0.9 answer + 0.1 format"),
        ("select", "dynamic sampling, up to 10 × P", "duplicate informative"),
    ]
    assert "do not differ" in rlviz("show", "dcpo", "--against", "dcpo").output
