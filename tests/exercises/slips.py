"""What the tests of the checks ask of the mistakes that a check knows."""


def says_of(family, wrong):
    """Return the sentence of the mistake whose function this is."""
    return next(mistake.says for mistake in family if mistake.wrong is wrong)


def name_in(family):
    """Return what gives the names of a family's functions, for pytest's ids."""
    return {mistake.wrong: mistake.name for mistake in family}.__getitem__
