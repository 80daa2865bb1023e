"""Every piece and algorithm against numbers that other people's implementations computed: TRL, verl, rlax and more.

cases.json holds the numbers, with the package, version and function that each came from; adapter.py asks rlviz for the same.
"""

import importlib.util
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

HERE = Path(__file__).parent

ATOL, RTOL = 1e-9, 1e-6
CASES = json.loads((HERE / "cases.json").read_text(encoding="utf-8"))["cases"]
COUNTS = {
    "logp": 2,
    "advantage": 19,
    "gae": 16,
    "value_loss": 2,
    "kl_in_reward": 3,
    "adaptive_kl": 2,
    "kl_estimator": 13,
    "policy_loss": 18,
    "grpo_loss": 28,
    "aggregate": 5,
    "gspo": 14,
    "dcpo_bounds": 2,
    "dcpo_sas": 5,
    "dcpo_loss": 7,
    "dpo": 6,
    "overlong": 4,
}


def imported(path):
    spec = importlib.util.spec_from_file_location(f"conformance_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


adapter = imported(HERE / "adapter.py")


def as_arrays(value):
    """Return what the cases give as lists in the form that the adapter's functions take."""
    if isinstance(value, list) and isinstance(value[0], dict):
        return [{key: np.array(part) for key, part in step.items()} for step in value]
    return np.array(value) if isinstance(value, list) else value


def answer(case):
    """Return what rlviz says. No case is refused, be it one with a library's quirk."""
    inputs = {key: as_arrays(value) for key, value in case["inputs"].items()}
    return getattr(adapter, case["fn"])(**inputs, **case["settings"])


def as_numbers(value):
    if isinstance(value, list):
        return np.array([as_numbers(part) for part in value])
    return np.asarray(value.detach() if isinstance(value, torch.Tensor) else value, dtype=float)


def differences(case, result):
    """Yield a line for each answer that is missing, has another shape, or is too far off where the mask counts."""
    for key, expected in case["expected"].items():
        if result.get(key) is None:
            if key not in case["optional_keys"]:
                yield f"{key} is missing"
            continue
        if isinstance(expected, list) and isinstance(expected[0], list) and len({len(part) for part in expected}) > 1:
            answers, references = result[key], expected  # a list of arrays of several shapes
        else:
            answers, references = [result[key]], [expected]
        rtol = max(RTOL, case.get("rtol") or 0)
        counts = np.array(case["inputs"]["mask"]) != 0 if key in case["masked_keys"] else ...
        for got, reference in zip(map(as_numbers, answers), map(as_numbers, references), strict=True):
            if got.shape != reference.shape:
                yield f"{key} has the shape {got.shape}, in the reference {reference.shape}"
            elif not (abs(got - reference) <= ATOL + rtol * abs(reference))[counts].all():  # not <= also catches nan
                yield f"{key} is {got}, in the reference {reference}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"].removeprefix("open/"))
def test_the_answer_is_the_reference_s(case):
    assert not list(differences(case, answer(case)))


def test_no_case_is_dropped():
    assert Counter(case["family"] for case in CASES) == COUNTS
    assert len({case["id"] for case in CASES}) == sum(COUNTS.values()) == 146
    for case in CASES:
        assert hasattr(adapter, case["fn"]), case["id"]
        assert set(case["expected"]) - set(case["optional_keys"]), f"{case['id']} would pass with an empty answer"
        assert all(case["source"][part] for part in ("package", "version", "function")), case["id"]


@pytest.mark.parametrize(
    "case", [c for c in CASES if "grad" in c["expected"] and "mask" in c["inputs"]], ids=lambda c: c["id"]
)
def test_padding_gets_exactly_no_gradient(case):
    padding = np.array(case["inputs"]["mask"]) == 0
    assert not answer(case)["grad"][padding].any()


# settings that the interface has and no case above uses

MASK = np.array([[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]])  # 4 tokens in 2 responses, and a row without any
LOSSES = np.array([[3.0, 6.0, 9.0, 99.0], [2.0, 99.0, 99.0, 99.0], [99.0] * 4])  # sums 18 and 2, means 6 and 2


@pytest.mark.parametrize(
    ("agg", "totals", "loss"),
    [
        ("token-mean", {}, 20 / 4),
        ("token-mean", {"total_tokens": 30, "total_seqs": 7}, 20 / 30),
        ("token-sum", {"total_tokens": 30, "total_seqs": 7}, 20),
        ("seq-mean-token-mean", {"total_tokens": 30, "total_seqs": 16}, 8 / 16),
        ("seq-mean-token-sum", {"total_seqs": 16}, 20 / 16),
        ("seq-mean-token-sum-norm", {"total_seqs": 16}, 20 / 16 / 4),
        ("seq-mean-token-sum-norm", {"norm": 5, "total_seqs": 16}, 20 / 16 / 5),
        ("seq-sum-token-mean", {"total_seqs": 16}, 8),
    ],
)
def test_a_part_of_a_batch_weighs_what_it_weighs_in_the_whole(agg, totals, loss):
    assert adapter.aggregate(LOSSES, MASK, agg, **totals)["loss"].item() == pytest.approx(loss, rel=1e-12)


def test_a_part_larger_than_the_whole_is_refused():
    with pytest.raises(NotImplementedError, match="3 tokens"):
        adapter.aggregate(LOSSES, MASK, "token-mean", total_tokens=3)


def test_groups_of_several_sizes_in_any_order():
    # prompt 7: 0 and 1, std √½; prompt 3: 4, 1, 1 with mean 2, std √3; leaving one out: times 2 and times 3/2
    groups = {"rewards": np.array([4.0, 0.0, 1.0, 1.0, 1.0]), "group_index": np.array([3, 7, 3, 7, 3])}
    options = {"ddof": 1, "eps": 0.0, "whiten": False}
    centred = np.array([2, -0.5, -1, 0.5, -1])
    std = np.array([3, 0.5, 3, 0.5, 3]) ** 0.5
    for baseline, scale, expected in [
        ("group_mean", "none", centred),
        ("group_mean", "group_std", centred / std),
        ("loo", "none", centred * [1.5, 2, 1.5, 2, 1.5]),
    ]:
        got = adapter.group_advantage(**groups, baseline=baseline, scale=scale, **options)
        np.testing.assert_allclose(got["advantages"], expected, rtol=1e-12)


def test_a_group_of_one_is_refused():
    options = {"baseline": "group_mean", "scale": "none", "ddof": 1, "eps": 0.0, "whiten": False}
    with pytest.raises(NotImplementedError, match="singleton"):
        adapter.group_advantage(np.array([1.0, 2.0, 3.0]), np.array([0, 0, 1]), **options)


def test_prompts_of_several_group_sizes_have_histories_of_their_own():
    # prompt 1, third visit: rewards 1, 0 after 0, 0 and 0, 0. new ½, −½; mean of all 1/6, so total 5/6, −1/6
    #   SA_new = ⅔ new + ⅓ total = 11/18, −7/18; SA_total = ⅓ new + ⅔ total = 13/18, −5/18; nearer to 0: 11/18, −5/18
    # prompt 0, first visit, in the rows between: 0, 3, 3 with mean 2
    zeros = {"prompt_ids": np.array([1, 1]), "rewards": np.zeros(2)}
    last = {"prompt_ids": np.array([0, 1, 0, 1, 0]), "rewards": np.array([0.0, 1.0, 3.0, 0.0, 3.0])}
    got = adapter.dcpo_sas([zeros, zeros, last], norm_by_std=False, n_prompts=3, ddof=0)
    np.testing.assert_allclose(got["advantages"][-1], [-2, 11 / 18, 1, -5 / 18, 1], rtol=1e-12)
    np.testing.assert_allclose(got["mean"][-1], [2, 1 / 6, 0], rtol=1e-12)
    np.testing.assert_array_equal(got["count"], [[0, 1, 0], [0, 2, 0], [1, 3, 0]])


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("delta", [1.1, 1.2, 1.5])
def test_delta_may_be_below_and_above_the_clip(delta, sign):
    # one token a response, clip at .8 and 1.2: J = min(min(r, delta) A, clip(r) A)
    ratio, one = np.array([[0.5], [1.15], [1.3], [2.0]]), np.ones((4, 1))
    objective = np.minimum(np.minimum(ratio, delta) * sign, ratio.clip(0.8, 1.2) * sign)
    got = adapter.grpo_loss(
        logp=np.log(ratio),
        old_logp=0 * one,
        advantages=np.full(4, sign),
        mask=one,
        loss_type="bnpo",
        level="token",
        clip_low=0.2,
        clip_high=0.2,
        beta=0.0,
        delta=delta,
        max_completion_length=1,
        kl_ratio_weighted=False,
    )
    assert got["loss"].item() == pytest.approx(-objective.mean(), rel=1e-12)
