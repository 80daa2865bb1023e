"""What a lesson's kernel runs before its first cell when `pytest` runs the lessons along with the tests: less is sampled.

Every cell runs as it is written, and every run has its number of steps; but a step of training has an eighth of the prompts or
pairs (unless the lesson records all of its responses), a comparison an eighth of the budget, an evaluation a twentieth of the
prompts. `pytest notebooks` runs the lessons in full. The names in here are gone before the first cell.
"""


def _sample_less() -> None:
    from dataclasses import replace
    from functools import wraps

    from rlviz import comparison, training
    from rlviz.training import PairSettings, TrainSettings, default_settings
    from small_models.evaluation import evaluate

    def less(value):
        if isinstance(value, PairSettings):
            return replace(value, batch_size=max(4, value.batch_size // 8))
        if not isinstance(value, TrainSettings) or value.details_groups > TrainSettings.details_groups:
            return value
        for_minibatches = -(-value.minibatches // value.group_size)
        return replace(value, num_prompts=max(2, for_minibatches, value.num_prompts // 8))

    train, compare = training.train, comparison.compare

    @wraps(train)
    def train_on_less(*given, settings=None, **others):
        if not any(isinstance(value, TrainSettings | PairSettings) for value in given):
            others["settings"] = less(settings or default_settings(given[-1]))
        return train(*map(less, given), **others)

    @wraps(compare)
    def compare_less(contenders, *given, amount, **others):
        contenders = [replace(contender, settings=less(contender.settings)) for contender in contenders]
        return compare(contenders, *given, amount=amount // 8, **others)

    training.train, comparison.compare = train_on_less, compare_less
    evaluate.__kwdefaults__["num_prompts"] = 50


_sample_less()
del _sample_less
