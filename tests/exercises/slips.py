"""What the tests of the checks ask of the mistakes that a check knows."""

from tests.exercises.typed import TYPED


def says_of(family, wrong):
    """Return the sentence of the mistake whose function this is."""
    return next(mistake.says for mistake in family if mistake.wrong is wrong)


def name_in(family):
    """Return what gives the names of a family's functions, for pytest's ids."""
    return {mistake.wrong: mistake.name for mistake in family}.__getitem__


def not_typed(check, family):
    """Return the functions of the mistakes that have values by hand, since no student's answer stands in `TYPED`."""
    return {mistake.wrong for mistake in family if mistake.name not in TYPED[check]}
