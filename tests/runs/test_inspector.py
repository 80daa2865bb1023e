"""The inspector shows the records, wherever its controls have been, alone or beside another run, live or from disk."""

import base64
import json
from dataclasses import replace

import comm
import pytest

from rlviz.algorithms import DAPO, DPO, GRPO, differences
from rlviz.runs import inspected
from rlviz.runs.formula import fill_template
from rlviz.runs.inspector import RunInspector, inspect_run
from rlviz.runs.panel import training_panel
from rlviz.runs.terms import token_terms
from rlviz.training import RunFolder, TrainSettings, train
from rlviz.types import PairRecord
from small_models.policies import load_policy
from small_models.tasks import Chain
from tests.runs.conftest import FAMILY

pytestmark = pytest.mark.usefixtures("axes_stay", "few_rows")

SETTINGS = TrainSettings(
    steps=7, num_prompts=6, group_size=4, updates_per_rollout=4, lr=1e-3, lr_warmup_steps=0, evaluate_every=0,
    details_every=3, details_groups=3, watch_every=0,
)  # fmt: skip


def half(old_logp):
    """A rule of one's own: a third up, half down."""
    return 0.5, 4 / 3


MINE = replace(GRPO, name="Mine", bounds=half, kl=None)
RUNS = {"grpo": (GRPO, {}), "dapo": (DAPO, {"seed": 1, "details_every": 2}), "mine": (MINE, {"steps": 3})}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return name → records and folder of a run."""
    out = tmp_path_factory.mktemp("runs")
    starts = {name: (algorithm, replace(SETTINGS, **changes)) for name, (algorithm, changes) in RUNS.items()}
    return {
        name: (list(train(load_policy("chain", device="cpu"), Chain(), *start, out=out / name)), out / name)
        for name, start in starts.items()
    }


@pytest.fixture(scope="module")
def grpo(runs):
    return runs["grpo"]


def line(inspector, number, metric):
    """Return the steps and the values that a line is bound to."""
    bound = inspector.picture["data"]
    return bound[f"r{number}_{metric}_at"], bound[f"r{number}_{metric}"]


def group_of(inspector, run=0):
    """Return the chosen group as the page gets it."""
    groups = inspector.data["runs"][run]["groups"]
    return groups[min(inspector.place[1], len(groups) - 1)]


def pick(column, lengths, response, token):
    """Return a column's value at a token, as the page does."""
    if isinstance(column, list):
        return column[sum(lengths[:response]) + token]
    return column["r"][response] if isinstance(column, dict) else column


def token_view(inspector, run=0):
    """Return the sentence, the numbers, and all lines of the terms of the chosen token, as the page reads them."""
    group, tables = group_of(inspector, run), inspector.data["tables"][run]
    lengths = [len(response["tokens"]) for response in group["responses"]]
    at = (lengths, *inspector.place[2:])
    numbers = {key: pick(column, *at) for key, column in group["numbers"].items()}

    def lines(terms):
        return "\n".join(
            f"{name} {numbers[key]} {fill_template(text, numbers)}\n{lines(parts)}" for name, key, text, parts in terms
        )

    terms = [tables["terms"][int(index)] for index in str(pick(group["terms"], *at)).split()]
    return fill_template(tables["said"][pick(group["said"], *at)], numbers), numbers, lines(terms)


def value(text):
    return float(text.replace("−", "-").replace("∞", "inf"))


def with_responses(record, *responses):
    """Return a step of whose groups the first alone is left, with these responses."""
    return replace(record, groups=(replace(record.groups[0], responses=responses),))


def test_a_step_and_its_place_reach_the_page_in_one_message(grpo, monkeypatch):
    """In two, a page that comes between them has a group of the step before: none, or one without its tokens' numbers."""
    # where ipykernel was imported and no kernel runs, a comm is of no kernel, and nothing is sent
    monkeypatch.setattr(comm, "create_comm", comm.DummyComm)
    inspector, sent = inspect_run(grpo[1]), []
    monkeypatch.setattr(
        inspector, "send_state", lambda key=None: sent.append({key} if isinstance(key, str) else {*key})
    )
    inspector.set_state({"place": [3, 99, 0, 0]})  # as a page sends it, and further than there are groups
    assert inspector.place == [3, 0, 0, 0]
    assert [{"data", "place"} & keys for keys in sent if {"data", "place"} & keys] == [{"data", "place"}]


def test_it_opens_at_the_strongest_push_in_a_group_with_right_and_wrong_responses(grpo):
    records, folder = grpo
    assert inspect_run(folder).place == [6, *inspected.strongest_push(records[5])]
    first, second, *_ = records[5].groups[0].responses
    louder = replace(first, correct=True, tokens=tuple(replace(token, push=9.0) for token in first.tokens))
    same = replace(records[5].groups[0], responses=(louder, louder))
    mixed = replace(same, responses=(replace(first, correct=True), replace(second, correct=False)))
    assert inspect_run([replace(records[5], groups=(same, mixed))], algorithm=GRPO).place[1] == 1
    for sign in (1, -1):  # the hardest push is 9, whichever way it goes
        pushes = zip(first.tokens, (0.3 * sign, -0.1 * sign, 0.0), strict=False)
        pushed = replace(first, tokens=tuple(replace(token, push=push) for token, push in pushes))
        step = inspected.StepWriter(GRPO).step(with_responses(records[5], pushed))
        assert step["groups"][0]["responses"][0]["push"] == [9 * sign, -3 * sign, 0] and step["open"] == (0, 0, 0)


def test_every_token_has_the_numbers_of_its_record_and_the_terms_of_its_group(grpo):
    """The row of the run's own algorithm has the record's push and weight, though it is computed from the group alone."""
    records, folder = grpo
    inspector, compared = inspect_run(folder), 0
    names = ("old_prob", "new_prob", "ref_prob", "ratio", "lower", "upper", "weight", "push")
    group = records[5].groups[inspector.place[1]]
    expected = token_terms(GRPO, records[5], group)
    run_row, lengths = group_of(inspector)["others"][0], [len(response.tokens) for response in group.responses]
    for r, response in enumerate(group.responses):
        for t, token in enumerate(response.tokens):
            inspector.place = [6, inspector.place[1], r, t]
            sentence, numbers, lines = token_view(inspector)
            assert sentence == fill_template(expected[r][t].sentence, expected[r][t].numbers)
            for name in names:
                assert value(numbers[name]) == pytest.approx(getattr(token, name), rel=1e-2, abs=5e-4)
            assert value(numbers["advantages"]) == pytest.approx(token.advantage, abs=5e-4)
            assert all(fill_template(term.text, expected[r][t].numbers) in lines for term in expected[r][t].terms)
            assert ("Its gradient is cut" in sentence) == token.clipped
            assert (t in group_of(inspector)["responses"][r]["clipped"]) == token.clipped
            for column, number in (("push", token.push), ("weight", token.weight)):
                assert value(pick(run_row[column], lengths, r, t)) == pytest.approx(number, rel=6e-3, abs=1e-9)
                compared += number != 0
    assert compared > 20


def test_white_space_is_seen_but_for_the_one_before_a_word():
    texts = {" the": " the", "the": "the", " ": "␣", "  the": "␣␣the", " \n": "␣↵", "": "∅"}
    assert {token: inspected.visible_token(token) for token in texts} == texts


def test_every_move_changes_its_view_and_back_again_nothing_differs(grpo):
    inspector = inspect_run(grpo[1])
    place, data, before = inspector.place, inspector.data, token_view(inspector)
    for step in (3, 5):  # 5 has no tokens
        inspector.place = [step, 0, 0, 0]
        assert inspector.data != data and inspector.data["step"] == step
    inspector.place = place
    assert inspector.data == data
    for index in (1, 2, 3):
        moved = [*place]
        moved[index] = (place[index] + 1) % 3
        inspector.place = moved
        assert inspector.place == moved and token_view(inspector) != before
    for step, nearest in ((99, 7), (-1, 1)):
        inspector.place = [step, *place[1:]]
        assert inspector.place[0] == nearest


def test_a_run_on_pairs_has_curves_and_numbers_and_no_groups():
    record = PairRecord(
        step=1, seconds=0.1, loss=0.6, grad_norm=1.0, margin=0.1, pair_accuracy=0.75, chosen_reward=0.1, rejected_reward=0.0,
        chosen_logp=-3.5, rejected_logp=-7.0, chosen_gain=-0.5, rejected_gain=-2.0, pull=0.5, held_out_accuracy=0.5, lr=1e-4,
        tokens_sampled=0,
    )  # fmt: skip
    better, last = replace(record, step=2, held_out_accuracy=0.6), replace(record, step=3, held_out_accuracy=None)
    inspector = inspect_run([record, better, replace(last, chosen_gain=1.5)], algorithm=DPO)
    assert inspector.place == [3, 0, 0, 0] and inspector.data["runs"][0]["groups"] == []
    assert inspector.caption == (
        "Step 3 of 3. DPO: held-out accuracy 0.60 (at step 2), 75% of pairs in order, log π against the start: chosen +1.5, "
        "rejected −2.0."
    )
    assert line(inspector, 0, "rejected_gain")[1] == [-2.0, -2.0, -2.0]


def test_from_disk_it_shows_what_it_shows_of_the_records_and_a_saved_notebook_has_the_picture(grpo):
    records, folder = grpo
    from_list, *others = (
        inspect_run(source, algorithm=GRPO) for source in (records, str(folder), RunFolder.open(folder))
    )
    for inspector in others:
        assert (inspector.data, inspector.picture, inspector.run) == (from_list.data, from_list.picture, from_list.run)
    data, _ = from_list._repr_mimebundle_()
    assert base64.b64decode(data["image/png"]) == from_list.png and data["text/plain"] == from_list.caption
    assert "application/vnd.jupyter.widget-view+json" in data


def test_two_runs_side_by_side(runs):
    (first, a), (second, b) = runs["grpo"], runs["dapo"]
    inspector = inspect_run(a, b)
    assert inspector.run["names"] == ["1 (GRPO)", "2 (DAPO)"] and inspector.run["tokens"] == [2, 3, 4, 6]
    for number, (name, records) in enumerate((("1 (GRPO)", first), ("2 (DAPO)", second))):
        assert line(inspector, number, "reward")[1] == [record.reward for record in records]
        group, written = records[5].groups[inspector.place[1]], group_of(inspector, number)
        assert written["prompt"] == group.prompt
        assert [row["tokens"] for row in written["responses"]] == [[t.token for t in r.tokens] for r in group.responses]
        assert f"{name}: reward {records[5].reward:.2f}" in inspector.caption
    lines = inspector.run["differs"]
    for row in differences(GRPO, DAPO):
        assert (row.slot, f"{row.before} → {row.after}: {row.why}") in lines
    assert ("seed", "0 → 1") in lines and "steps" not in dict(lines)
    inspector.place = [4, *inspector.place[1:]]  # where the second run alone has tokens
    assert ["numbers" in group_of(inspector, number) for number in (0, 1)] == [False, True]
    shorter = inspect_run(first, first[:3], algorithm=GRPO, other_algorithm=GRPO)
    assert shorter.data["runs"][1] is None and "2 (GRPO) has no such step" in shorter.caption
    assert shorter.run["differs"] == []


def test_a_rule_of_one_s_own_needs_its_algorithm_for_the_formula_alone(runs):
    _, folder = runs["mine"]
    inspector = inspect_run(folder)
    sentence, numbers, lines = token_view(inspector)
    assert "give what trained this run: inspect_run(run, algorithm=…)" in lines and "min(ratio" not in lines
    assert "push" in sentence and "Mine: reward" in inspector.caption
    assert group_of(inspector)["others"] == [] and inspector.run["family"] == [[]]
    again = inspect_run(folder, algorithm=MINE)
    _, numbers, lines = token_view(again)
    assert "= min(ratio · advantages" in lines and (numbers["lower"], numbers["upper"]) == ("0.500", "1.333")
    assert again.run["family"][0][0]["name"] == "Mine" and len(group_of(again)["others"]) == len(FAMILY) + 1
    with pytest.raises(ValueError, match="was trained with another one"):
        inspect_run(folder, algorithm=GRPO)


def test_a_list_that_grows_is_followed_by_who_looks_at_its_newest_step_and_not_from_an_earlier_one(grpo):
    """The strongest push is shown at first, and not again over what a person looks at."""
    records, growing = grpo[0], []
    inspector = inspect_run(growing, algorithm=GRPO)
    assert inspector.caption == "No step yet." and inspector.data["runs"] == [None] and inspector.run["at"] == []
    for record in records[:4]:
        growing.append(record)
        inspector._handle_custom_msg({"refresh": True}, [])
        assert inspector.place[0] == min(record.step, 3)  # the newest with tokens
        assert inspector.run["at"] == line(inspector, 0, "reward")[0] == list(range(1, record.step + 1))
        assert ("numbers" in group_of(inspector)) == (record.step >= 3)
    strongest = inspected.strongest_push(records[2])
    assert inspector.place == [3, *strongest]
    earlier = inspect_run(growing, algorithm=GRPO)
    earlier.place = [2, 0, 0, 0]
    avoided = (strongest, inspected.strongest_push(records[5]))
    inspector.place = place = [3, *next(p for p in ((1, 1, 0), (1, 1, 1)) if p not in avoided)]
    growing += records[4:]
    inspector.refresh()
    earlier.refresh()
    assert inspector.place == [6, *place[1:]] and earlier.place[0] == 2


def test_a_folder_that_another_process_writes_is_read_again(grpo, tmp_path):
    _, folder = grpo
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    inspector = inspect_run(tmp_path)
    assert inspector.caption == "No step yet."
    for name in ("metrics", "samples"):
        lines = (folder / f"{name}.jsonl").read_text().splitlines(keepends=True)
        (tmp_path / f"{name}.jsonl").write_text("".join(lines[:3]) + lines[3][:40])
    inspector.refresh()
    assert inspector.place[0] == 3 and "Step 3 of 7." in inspector.caption
    before = inspector.data["runs"]
    (tmp_path / "samples.jsonl").write_text('{"step": 1}\n')
    inspector.refresh()
    assert "cannot be read" in inspector.caption and "samples.jsonl, line 1 lacks groups" in inspector.caption
    assert inspector.data["runs"] == before


def test_a_panel_is_followed_while_it_trains():
    panel = training_panel(settings=replace(SETTINGS, steps=3, num_prompts=3))
    inspector = inspect_run(panel)
    assert inspector.caption == "No step yet."
    panel.start()
    panel.wait(60)
    assert inspector.place[0] == 3 and line(inspector, 0, "reward")[1] == [r.reward for r in panel.records]
    assert "= min(ratio" in token_view(inspector)[2]


def test_a_frozen_page_holds_what_the_kernel_would_send_and_asks_nobody(runs, tmp_path, monkeypatch):
    packed = []
    monkeypatch.setattr(
        "rlviz.runs.inspector.pack", lambda data: packed.append(json.loads(json.dumps(data))) or "PACKED"
    )
    monkeypatch.setattr(RunInspector, "png", b"")  # which takes longest
    inspector = inspect_run(runs["grpo"][1], runs["dapo"][1])
    place, page = inspector.place, inspector.save(tmp_path / "both.html").read_text(encoding="utf-8")
    assert "<title>rlviz: 1 (GRPO) and 2 (DAPO)</title>" in page and "default-src &#x27;none&#x27;;" in page
    assert "PACKED" in page and "http" not in page.replace("http-equiv", "")
    (frozen,) = packed
    assert frozen["place"] == place == inspector.place
    assert frozen["run"]["live"] is False and list(frozen["steps"]) == [str(step) for step in range(1, 8)]
    for step in range(1, 8):
        inspector.place = [step, *place[1:]]
        live = json.loads(json.dumps(inspector.data))
        assert frozen["steps"][str(step)] | {"tables": live["tables"]} == live
    assert frozen["tables"] == live["tables"] and frozen["picture"] == json.loads(json.dumps(inspector.picture))


@pytest.mark.parametrize(("most", "steps"), [(3, [1, 4, 7]), (1, [7])])
def test_a_frozen_page_keeps_so_many_steps_with_tokens_at_most(most, steps, grpo, monkeypatch):
    packed = []
    monkeypatch.setattr("rlviz.runs.inspector.pack", lambda data: packed.append(data) or "")
    inspector = inspect_run([replace(grpo[0][5], step=s) for s in range(1, 8)], algorithm=GRPO)
    inspector.packed(most=most)
    with_tokens = [s for s, data in packed[0]["steps"].items() if "numbers" in data["runs"][0]["groups"][0]]
    assert with_tokens == packed[0]["run"]["tokens"] == steps and inspector.run["tokens"] == list(range(1, 8))


def test_a_token_of_a_group_that_an_algorithm_leaves_out_is_not_clipped_by_it(grpo):
    """All four are right, so DAPO samples another group in its place; their rewards differ, so that A is not 0."""
    record = next(record for record in grpo[0] if record.has_tokens)
    tokens = {"old_prob": 0.3, "new_prob": 0.6, "ratio": 2.0, "advantage": 1.0, "weight": 0.01}
    right = [
        replace(r, correct=True, reward=1.0 - 0.1 * index, tokens=tuple(replace(t, **tokens) for t in r.tokens))
        for index, r in enumerate(record.groups[0].responses)
    ]
    writer = inspected.StepWriter(GRPO)
    (group,) = writer.step(with_responses(record, *right))["groups"]
    rows = dict(zip([row["name"] for row in writer.family], group["others"], strict=True))
    assert (rows["GRPO"]["clipped"], rows["GRPO"]["ratio"]) == (1, "2")
    left_out = {name: rows["DAPO"][name] for name in ("A", "upper", "weight", "push", "clipped")}
    assert left_out == {"A": "1", "upper": "1.280", "weight": "0", "push": "0", "clipped": 0}
