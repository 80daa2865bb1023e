"""What a lesson's kernel runs before its first cell when `pytest` runs the lessons along with the tests: less is sampled.

Every cell runs as it is written, and every run has its number of steps; but a step of training has an eighth of the prompts (a
quarter where each has one response), a quarter of the pairs, and two updates at most, or one a minibatch, a step on a table two
updates at most. With another seed than 0 only one step of ten is made, and its record comes ten times; with seed 0 one of four,
or one of two where details of records are kept, or where nothing is evaluated, since a lesson then looks at the policy itself.
The first step, the last and those at which something is due (an evaluation, the details of a record, a new reference, fresh
labels) are made always. A comparison has an eighth of the budget. Of the pairs to learn from, only an eighth are sampled; a
list has each eight times, a run learns from the eighth, or from eight. An evaluation takes fifty prompts, a lesson's own look at
held-out prompts at most 250, a reward model a batch of eight pairs and a quarter of its later updates.
`pytest notebooks` runs the lessons in full. The names in here are gone before the first cell.
"""


def _sample_less() -> None:
    from dataclasses import replace
    from functools import wraps

    import rlviz
    from rlviz import study, tabular, training
    from rlviz.study import comparison
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

    intervals = "evaluate_every", "details_every", "reset_reference_every", "refresh_reward_every"
    train, compare, train_table = training.train, comparison.compare, tabular.train_table
    make_pairs = pairs.make_pairs
    all_held_out = Task.held_out_prompts

    @wraps(train)
    def train_on_less(*arguments, settings=None, **others):
        if not any(isinstance(value, TrainSettings | PairSettings) for value in arguments):
            others["settings"] = less(settings or default_settings(arguments[-1]))
        if others.get("pairs"):
            others["pairs"] = others["pairs"][: max(8, -(-len(others["pairs"]) // 8))]
        return train(*map(less, arguments), **others)

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

    def repeating(learn):
        @wraps(learn)
        def learn_seldom(run):
            step, settings = run.step + 1, run.settings
            due = {name: getattr(settings, name) for name in intervals if hasattr(settings, name)}
            looked_at = "details_every" in due and not (due["details_every"] or due["evaluate_every"])
            seldom = 2 if looked_at else 10 if settings.seed else 2 if due.get("details_every") else 4
            is_due = step in (1, settings.steps) or any(
                every and step % every == 0 for every in (seldom, *due.values())
            )
            if is_due or not hasattr(run, "last_learned"):  # a resumed run has none
                run.last_learned = learn(run)
            else:
                run.state.step += 1
            return run.last_learned

        return learn_seldom

    for kind in (RolloutRun, PreferenceRun):
        kind.advance = repeating(kind.advance)
    rlviz.train = training.train = train_on_less  # rlviz keeps what was once imported from it
    rlviz.compare = study.compare = comparison.compare = compare_less
    rlviz.train_table = tabular.train_table = train_table_on_less
    pairs.make_pairs = reward_model.make_pairs = make_fewer_pairs
    reward_model.train_reward_model.__kwdefaults__["batch_size"] = 8
    reward_model.REFRESH_STEPS //= 4
    Task.held_out_prompts = property(lambda task: all_held_out.fget(task)[:250])
    evaluate.__kwdefaults__["num_prompts"] = 50


_sample_less()
del _sample_less
