"""The loop: what a step does, against plain loops, and what its records and its folder hold."""

from dataclasses import replace

import pytest
import torch

from rlviz.algorithms import GRPO
from rlviz.training import RunFolder, TrainSettings, find_task, history, resume, summarize, train
from small_models.evaluation import evaluate
from small_models.policies import load_policy
from small_models.sampling import response_logits, token_logp
from small_models.tasks import Chain

NO_KL = replace(GRPO, kl=None)
TASK = Chain()
SHORT = TrainSettings(steps=6, num_prompts=4, group_size=4, evaluate_every=3, checkpoint_every=2, details_every=3)
# several updates, minibatches and a reference policy: everything that has state
FULL = replace(SHORT, updates_per_rollout=4, minibatches=2, lr=1e-3)
REQUIRED = (
    "step seconds reward accuracy entropy clip_fraction_low clip_fraction_high ratio_mean ratio_std response_length kl "
    "zero_variance_groups grad_norm loss"
).split()


def start(algorithm=NO_KL, settings=SHORT, **kwargs):
    return train(load_policy("chain", device="cpu"), kwargs.pop("task", TASK), algorithm, settings, **kwargs)


def weights(run):
    return {name: tensor.clone() for name, tensor in run.policy.model.state_dict().items()}


def test_records_hold_what_a_picture_needs():
    run = start()
    records = list(run)
    assert [record.step for record in records] == [1, 2, 3, 4, 5, 6]
    frame = history(records)
    assert set(REQUIRED) <= set(frame.columns)
    assert frame[REQUIRED].notna().all().all()
    assert frame["held_out_accuracy"].notna().tolist() == [False, False, True] * 2
    assert (frame["tokens_sampled"].diff().dropna() > 0).all()
    assert run.tokens_sampled == frame["tokens_sampled"].iloc[-1]
    assert run.train_seconds == pytest.approx(frame["seconds"].sum())
    # details_every=3: the tokens of all groups; watch_every=5, its default: between these, those of one whose rewards differ
    with_tokens = [[group for group in record.groups if group.responses[0].tokens] for record in records]
    assert [len(groups) for groups in with_tokens] == [0, 0, 4, 0, 1, 4]
    assert len({response.reward for response in with_tokens[4][0].responses}) > 1
    assert "reward=" in str(records[0]) and records[0].prompt not in str(
        records[0]
    )  # numbers, and no groups, on a screen


def test_the_last_step_is_evaluated_too():
    settings = replace(SHORT, steps=2, num_prompts=2, group_size=2)
    assert [record.held_out_accuracy is not None for record in start(settings=settings)] == [False, True]
    assert next(start(settings=replace(settings, steps=1, evaluate_every=0))).held_out_accuracy is None


def test_rows_without_advantage_leave_the_update_exactly():
    dropped, keeping = start(), start()
    keeping.state.skips_zero = False
    a, b = list(dropped), list(keeping)
    assert min(record.rows_used for record in a) < 1
    assert all(record.rows_used == 1 for record in b)
    for name, tensor in keeping.policy.model.state_dict().items():
        torch.testing.assert_close(tensor, dropped.policy.model.state_dict()[name], rtol=1e-4, atol=2e-6)
    for x, y in zip(a, b, strict=True):
        assert x.loss == pytest.approx(y.loss, abs=1e-6)
        assert x.grad_norm == pytest.approx(y.grad_norm, rel=1e-3, abs=1e-6)


def test_shape_and_select_are_applied():
    shaped = replace(NO_KL, shape=lambda rewards, lengths: rewards - 0.01 * lengths)
    plain, punished = next(start()), next(start(shaped))
    assert punished.reward == pytest.approx(plain.reward - 0.01 * plain.response_length, abs=1e-6)
    seen = []

    def two_groups(rewards):
        seen.append(rewards)
        return torch.tensor([3, 1])

    run = start(replace(shaped, select=two_groups))
    record = next(run)
    assert seen[0].unique().tolist() == [0, 1]  # before shaping
    assert (record.accuracy, record.zero_variance_groups) == (punished.accuracy, punished.zero_variance_groups)
    assert record.rows_used <= 2 / SHORT.num_prompts
    only = start(shaped)
    rollout = only.collect()
    advantages = torch.zeros_like(rollout.advantages)
    advantages[[1, 3]] = rollout.advantages[[1, 3]] * 2  # half the responses are counted, so each weighs twice
    only.update(replace(rollout, advantages=advantages))
    for name, tensor in only.policy.model.state_dict().items():
        torch.testing.assert_close(run.policy.model.state_dict()[name], tensor, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "algorithm", [NO_KL, replace(GRPO, kl=replace(GRPO.kl, beta=0.5))], ids=["without KL", "with KL"]
)
def test_a_step_is_what_a_slow_loop_makes_of_it(algorithm):
    """Do the first step again with plain loops and an optimizer of its own, and compare weights and every number."""
    algorithm = algorithm.with_parameters(eps_low=0.05, eps_high=0.1)
    settings = replace(SHORT, updates_per_rollout=4, minibatches=2, lr=2e-3, lr_warmup_steps=2, max_grad_norm=0.3,
                       temperature=0.8, max_new_tokens=7, evaluate_every=1, seed=2)  # fmt: skip
    run, twin = start(algorithm, settings), start(algorithm, settings)
    record = next(run)
    rollout = twin.collect()
    s, model = rollout.samples, twin.policy.model
    rows = [(p, g) for p in range(4) for g in range(4)]
    with torch.no_grad():
        ref_logits = response_logits(twin.state.reference, s.prompt_ids, s.prompt_mask, s.tokens)
        ref = token_logp(ref_logits, s.tokens, temperature=0.8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3 / 2, weight_decay=0.0)
    low = high = tokens = entered = 0
    losses, norms, ratios = [], [], []
    for update in range(4):
        if update % 2 == 0:
            halves = list(torch.randperm(16, generator=twin.state.generator).tensor_split(2))
        chosen = [rows[i] for i in halves.pop().tolist()]
        logits = response_logits(twin.policy, s.prompt_ids, s.prompt_mask, s.tokens)
        logp = token_logp(logits, s.tokens, temperature=0.8)
        loss = 0.0
        for p, g in chosen:
            length, advantage = int(s.lengths[p, g]), rollout.advantages[p, g, 0]
            ratio = (logp[p, g, :length] - s.logp[p, g, :length]).exp()
            terms = torch.minimum(ratio * advantage, ratio.clamp(0.95, 1.1) * advantage)
            if algorithm.kl is not None:
                x = ref[p, g, :length] - logp[p, g, :length]
                terms = terms - 0.5 * (x.exp() - x - 1)
            loss = loss - terms.mean() / len(chosen)
            tokens += length
            low += int(((ratio < 0.95) & (advantage < 0)).sum())
            high += int(((ratio > 1.1) & (advantage > 0)).sum())
            if advantage != 0 or algorithm.kl is not None:
                entered += 1
                ratios.append(ratio.detach())
        optimizer.zero_grad()
        loss.backward()
        norm = sum(p.grad.square().sum() for p in model.parameters()).sqrt()
        for parameter in model.parameters():
            parameter.grad *= min(1.0, 0.3 / norm)
        optimizer.step()
        losses.append(float(loss.detach()))
        norms.append(float(norm))
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(run.policy.model.state_dict()[name], tensor, rtol=1e-3, atol=1e-5)
    assert max(norms) > 0.3 and low > 0 and high > 0
    assert record.loss == pytest.approx(sum(losses) / 4, rel=1e-3, abs=1e-6)
    assert record.grad_norm == pytest.approx(sum(norms) / 4, rel=1e-3)
    assert record.lr == pytest.approx(1e-3)
    assert record.clip_fraction_low == pytest.approx(
        low / tokens, abs=1.5 / tokens
    )  # rounding may carry one over a limit
    assert record.clip_fraction_high == pytest.approx(high / tokens, abs=1.5 / tokens)
    assert (entered < 32) == (algorithm.kl is None)  # a group of equal rewards is among them
    assert record.rows_used == pytest.approx(entered / 32)  # 16 responses, each in two of the four updates
    assert record.ratio_mean == pytest.approx(float(torch.cat(ratios).mean()), rel=1e-4)
    assert record.ratio_std == pytest.approx(float(torch.cat(ratios).std(correction=0)), rel=1e-3)
    mask = s.mask
    assert record.entropy == pytest.approx(float(s.entropy[mask].mean()), rel=1e-5)
    assert record.truncated == pytest.approx(float(s.truncated.double().mean()))
    assert record.truncated > 0
    assert record.response_length == pytest.approx(float(mask.sum() / 16))
    part = mask if algorithm.kl is not None else mask[:, :1]
    x = (ref - s.logp)[:, : part.shape[1]][part]
    assert record.kl == pytest.approx(float((x.exp() - x - 1).mean()), abs=1e-6)
    assert record.held_out_accuracy == evaluate(run.policy, TASK, max_new_tokens=7).accuracy
    assert record.held_out_accuracy != evaluate(run.state.reference, TASK, max_new_tokens=7).accuracy


def test_a_run_with_own_pieces_resumes_when_they_are_given_again(tmp_path):
    def wide(old_logp):
        return torch.full_like(old_logp, 0.5), torch.full_like(old_logp, 3.0)

    mine = replace(NO_KL, bounds=wide)
    start(mine, out=tmp_path / "run").close()
    with pytest.raises(ValueError, match=r"resume\(folder, algorithm"):
        resume(tmp_path / "run")
    with pytest.raises(ValueError, match="trained with another one"):
        resume(tmp_path / "run", algorithm=NO_KL)
    assert next(resume(tmp_path / "run", algorithm=mine, device="cpu")).step == 1


def test_grpo_learns_the_chain_task():
    policy = load_policy("chain", device="cpu")
    before = evaluate(policy, TASK)
    records = list(train(policy, TASK, NO_KL, TrainSettings(steps=40, evaluate_every=0, details_every=0)))
    after = evaluate(policy, TASK)
    assert before.accuracy < 0.5
    assert after.accuracy > 0.75
    assert after.length > before.length + 1  # it has learned to write the running sums
    assert records[-1].entropy < records[0].entropy


def test_a_run_folder_holds_readable_files_and_no_pickle(tmp_path):
    run = start(out=tmp_path / "run")
    list(run)
    summary = summarize(run)
    folder = RunFolder.open(tmp_path / "run")
    assert folder.config["task"] == "chain"
    assert len(folder.metrics) == len(folder.samples) == 6
    assert set(REQUIRED) <= set(folder.metrics.columns)
    assert {"accuracy_before", "accuracy_after", "train_seconds", "tokens_sampled"} <= set(summary)
    assert 0.3 < summary["accuracy_before"] < 0.5
    for when, policy in (("before", run.start), ("after", run.policy)):
        assert summary[f"greedy_accuracy_{when}"] == evaluate(policy, TASK, temperature=0.0).accuracy
    names = {file.suffix for file in folder.path.rglob("*") if file.is_file()}
    assert names == {".json", ".jsonl", ".safetensors", ""}
    assert [file.name for file in folder.path.rglob("*") if file.is_file() and not file.suffix] == [".lock"]


ONE_STEP = TrainSettings(steps=1, num_prompts=2, group_size=2, evaluate_every=0)
CHAIN = find_task("chain")


@pytest.mark.parametrize("named", [("chain", "grpo"), (CHAIN, GRPO), ("chain", CHAIN, GRPO)])
def test_what_a_run_is_made_of_may_be_named_and_the_policy_left_out(named):
    usual = train(policy=load_policy("chain"), task="chain", algorithm="grpo", settings=ONE_STEP)
    run = train(*named, settings=ONE_STEP)
    assert (run.task, run.algorithm, run.settings) == (usual.task, usual.algorithm, usual.settings)
    assert next(run).reward == next(usual).reward
