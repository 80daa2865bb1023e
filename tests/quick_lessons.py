"""What a lesson's kernel runs before its first cell when `pytest` runs the lessons along with the tests: less is sampled.

Every cell runs as it is written, with an eighth of the prompts in each step of training and a twentieth in each evaluation;
`pytest notebooks` runs the lessons in full. Its names are gone before the first cell.
"""


def _sample_less() -> None:
    from rlviz.training import TrainSettings
    from small_models.evaluation import evaluate

    check = TrainSettings.__post_init__

    def check_and_shrink(settings: TrainSettings) -> None:
        check(settings)
        least = -(-settings.minibatches // settings.group_size)  # a response for each minibatch
        object.__setattr__(settings, "num_prompts", max(2, least, settings.num_prompts // 8))

    TrainSettings.__post_init__ = check_and_shrink
    evaluate.__kwdefaults__["num_prompts"] = 50


_sample_less()
del _sample_less
