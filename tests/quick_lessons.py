"""What a lesson's kernel runs before its first cell when `pytest` runs the lessons along with the tests: less is sampled.

Every cell runs as it is written, and every run has its number of steps; but one seed stands for all that `train_seeds` trains,
and of a run one step of ten is made, whose record comes ten times. The first step, the last and those at which something is due
(an evaluation, the details of a record, a new reference, fresh labels) are made always, and one of three where nothing is
evaluated, since a lesson then looks at the policy itself. A step has an eighth of the prompts (a quarter where each has one
response), a quarter of the pairs, and two updates at most, or one a minibatch; a comparison an eighth of the budget. Of the pairs
to learn from, only an eighth are sampled, and a list has each eight times; a reward model learns for an eighth of its updates.
`pytest notebooks` runs the lessons in full. The names in here are gone before the first cell.
"""


def _sample_less() -> None:
    from dataclasses import replace
    from functools import wraps

    import rlviz
    from rlviz import runs, study, tabular, training
    from rlviz.lessons import loops
    from rlviz.study import comparison, overoptimisation
    from rlviz.training import PairSettings, TrainSettings, default_settings, reward_model
    from rlviz.training.preferences import PreferenceRun
    from rlviz.training.run import RolloutRun
    from small_models import pairs
    from small_models.evaluation import evaluate
    from small_models.tasks import Task

    def less(value):
        if isinstance(value, PairSettings):
            return replace(value, batch_size=max(4, value.batch_size // 4))
        if not isinstance(value, TrainSettings):
            return value
        for_minibatches = -(-value.minibatches // value.group_size)
        return replace(
            value,
            num_prompts=max(2, for_minibatches, value.num_prompts // (4 if value.group_size == 1 else 8)),
            updates_per_rollout=min(value.updates_per_rollout, max(2, value.minibatches)),
        )

    train, train_seeds, compare = training.train, runs.train_seeds, comparison.compare
    train_table, make_pairs, teach = tabular.train_table, pairs.make_pairs, reward_model.train_reward_model
    loop = loops.grpo
    all_prompts, all_held_out = Task.train_prompts, Task.held_out_prompts

    @wraps(train)
    def train_on_less(*arguments, settings=None, **others):
        if not any(isinstance(value, TrainSettings | PairSettings) for value in arguments):
            others["settings"] = less(settings or default_settings(arguments[-1]))
        if others.get("pairs"):
            others["pairs"] = others["pairs"][: max(8, -(-len(others["pairs"]) // 8))]
        return train(*map(less, arguments), **others)

    @wraps(train_seeds)
    def train_first_seed(policy, task, algorithm, settings, seeds=(0, 1, 2), **others):
        records, policies = train_seeds(policy, task, algorithm, settings, seeds[:1], **others)
        return records * len(seeds), policies * len(seeds)

    @wraps(train_table)
    def train_table_on_less(*arguments, updates_per_rollout=4, **others):
        return train_table(
            *arguments, updates_per_rollout=min(updates_per_rollout, max(2, others.get("minibatches", 1))), **others
        )

    @wraps(compare)
    def compare_less(contenders, *arguments, amount, **others):
        contenders = [replace(contender, settings=less(contender.settings)) for contender in contenders]
        return compare(contenders, *arguments, amount=amount // 8, **others)

    @wraps(make_pairs)
    def make_fewer_pairs(policy, task, count, **others):
        fewer = make_pairs(policy, task, -(-count // 8), **others)
        return (fewer * 8)[:count]

    @wraps(teach)
    def teach_less(model, pairs, *, steps, **others):
        return teach(model, pairs[: max(8, len(pairs) // 8)], steps=-(-steps // 8), **{"batch_size": 8, **others})

    @wraps(loop)
    def loop_less(policy, task, loss, steps, seed):
        loop(policy, task, loss, -(-steps // 8), seed)

    def repeating(learn):
        @wraps(learn)
        def learn_seldom(run):
            step, settings = run.step + 1, run.settings
            due = [
                getattr(settings, f"{name}_every", 0)
                for name in ("evaluate", "details", "reset_reference", "refresh_reward")
            ]
            seldom = 10 if due[0] or due[1] else 3
            is_due = step in (1, settings.steps) or any(every and step % every == 0 for every in (seldom, *due))
            if is_due or not hasattr(run, "last_learned"):  # a resumed run has none
                run.last_learned = learn(run)
            else:
                run.state.step += 1
            return run.last_learned

        return learn_seldom

    for kind in (RolloutRun, PreferenceRun):
        kind.advance = repeating(kind.advance)
    rlviz.train = training.train = train_on_less  # rlviz keeps what was once imported from it
    rlviz.train_seeds = runs.train_seeds = train_first_seed
    rlviz.compare = study.compare = comparison.compare = compare_less
    rlviz.train_table = tabular.train_table = train_table_on_less
    pairs.make_pairs = reward_model.make_pairs = make_fewer_pairs
    reward_model.train_reward_model = teach_less
    loops.grpo = loop_less
    overoptimisation.SETTINGS = less(overoptimisation.SETTINGS)
    Task.train_prompts = property(lambda task: all_prompts.fget(task)[:1024])
    Task.held_out_prompts = property(lambda task: all_held_out.fget(task)[:64])
    evaluate.__kwdefaults__["num_prompts"] = 20


_sample_less()
del _sample_less
