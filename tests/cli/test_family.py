"""`rlviz algorithms` and `show`: tables and pages, for people and for programs."""

import json

from rlviz.algorithms import RELATIVES, command_name


def test_algorithms_lists_the_family_as_a_table_and_as_json(rlviz):
    rows = json.loads(rlviz("algorithms", "--format", "json").output)
    assert [row["name"] for row in rows] == (
        "ppo ppo-penalty dpo grpo dr-grpo dapo lite-ppo dupo gspo gspo-token dcpo".split()
    )
    dapo = rows[5]
    assert dapo["slots"]["bounds"] == "1 − 0.2 … 1 + 0.28" and dapo["models"] == ["actor"]
    assert rows[0]["beyond the slots"] == {"value loss": "value loss, V within ±0.2 of V_old"}
    table = rlviz("algorithms").output
    assert all(f" {row['name']} " in table for row in rows)
    assert "overlong punishment from 12 to 16 tokens" in table
    assert "rlviz show dapo --against grpo" in table


def test_relatives_are_listed_apart_and_go_where_the_family_goes(rlviz):
    rows = json.loads(rlviz("algorithms", "--relatives", "--format", "json").output)
    assert [row["name"] for row in rows] == [command_name(relative) for relative in RELATIVES]
    assert "ratio ≤ 5" in rlviz("algorithms", "--relatives").output
    assert "clipped weight" in rlviz("show", "cispo", "--against", "grpo").output
    assert (
        "def soft_gate(ratio, advantages, lower, upper, *, positive=1.0, negative=1.05):"
        in rlviz("show", "sapo").output
    )


def test_against_another_there_is_a_line_a_slot(rlviz):
    output = rlviz("show", "dapo", "--against", "grpo").output
    slots, _, mathematics = output.partition("As mathematics: «…» is what differs")
    lines, formulas = ([line for line in part.splitlines() if line.startswith("│")] for part in (slots, mathematics))
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]
    assert [row[0] for row in cells] == ["bounds", "kl", "aggregate", "shape", "select"]
    assert "1 / «Σ_j |o_j|»" in formulas[1] and output.index("def fixed_bounds") > output.index("Σ_j")
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
