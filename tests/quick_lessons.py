"""What a lesson's kernel runs before its first cell when `pytest` runs the lessons along with the tests: less is sampled.

Every cell runs as it is written, and every run has its number of steps; but a step of training has an eighth of the prompts or
pairs (unless the lesson records all of its responses), a comparison an eighth of the budget, an evaluation a twentieth of the
prompts. `pytest notebooks` runs the lessons in full. The names in here are gone before the first cell.
"""


def _sample_less() -> None:
    from functools import wraps

    from rlviz import comparison
    from rlviz.training import PairSettings, TrainSettings
    from small_models.evaluation import evaluate

    def shrinking(kind: type, name: str, least) -> None:
        check = kind.__post_init__

        def check_and_shrink(settings) -> None:
            check(settings)
            object.__setattr__(settings, name, max(least(settings), getattr(settings, name) // 8))

        kind.__post_init__ = check_and_shrink

    def prompts(settings: TrainSettings) -> int:
        recorded = settings.details_groups if settings.details_groups > TrainSettings.details_groups else 0
        return max(2, recorded, -(-settings.minibatches // settings.group_size))  # a response for each minibatch

    shrinking(TrainSettings, "num_prompts", prompts)
    shrinking(PairSettings, "batch_size", lambda settings: 4)
    evaluate.__kwdefaults__["num_prompts"] = 50
    compare = comparison.compare

    @wraps(compare)
    def compare_less(*arguments, amount, **others):
        return compare(*arguments, amount=amount // 8, **others)

    comparison.compare = compare_less


_sample_less()
del _sample_less
