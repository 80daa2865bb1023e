"""`rlviz algorithms` and `show`: the family of algorithms as tables and as pages of Python."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Column, Table

from rlviz.cli.terminal import Format, console, plain, plain_lines, print_json, wide_console


def algorithms(
    relatives: Annotated[
        bool, typer.Option("--relatives", help="The relatives that came later in place of the family.")
    ] = False,
) -> None:
    """List the family: each algorithm as what it changes in GRPO, and the models it needs."""
    from rlviz.algorithms import ALGORITHMS, GRPO, RELATIVES, changes, command_name, label

    listed = RELATIVES if relatives else ALGORITHMS
    who = "Relatives" if relatives else "The family"
    columns = Column("name", no_wrap=True), Column("slot", no_wrap=True), "piece"
    title = f"{who}: GRPO, and what each other one has in place of its pieces"
    table = Table(*columns, title=title, title_justify="left")
    for algorithm in (GRPO, *(a for a in listed if a is not GRPO)):
        sampling = any(piece is not None for piece in algorithm.slots().values())
        differing = {slot: new for slot, (_, new) in changes(GRPO, algorithm).items() if sampling} or GRPO.slots()
        parts = {slot: label(piece) for slot, piece in (differing.items() if sampling else ())}
        parts |= {name: label(part) for name, part in algorithm.beyond_the_slots().items()}
        if not sampling:
            parts = {"slots": "none of the eight: it learns from given pairs of responses", **parts}
        parts |= {"models": ", ".join(algorithm.models), "source": algorithm.source}
        for place, (slot, words) in enumerate(parts.items()):
            table.add_row("" if place else f"[bold]{command_name(algorithm)}[/]", slot, plain(words))
        table.add_section()
    console.print(table)
    console.print(
        "What differs, and why: rlviz show dapo --against grpo. An algorithm on one page: rlviz show grpo. "
        f"{'The family' if relatives else 'Those that came later'}: rlviz algorithms{'' if relatives else ' --relatives'}",
        markup=False,
    )


def show(
    name: Annotated[str, typer.Argument(help="Algorithm, for example grpo.")],
    against: Annotated[
        str | None,
        typer.Option(
            help="Another one: in which slots this one differs from it, and why; the formulas of both, with «…» around what "
            "differs; then its page, a line of the other that is gone marked -, one that came +."
        ),
    ] = None,
    output: Format = "table",
) -> None:
    """Print an algorithm on one page: its own pieces in the order in which they are called, then its loss; Python that runs."""
    from dataclasses import asdict

    from rich.syntax import Syntax

    from rlviz.algorithms import differences, find_algorithm
    from rlviz.algorithms.listing import show as listing_of

    algorithm, other = find_algorithm(name), None if against is None else find_algorithm(against)
    page = listing_of(algorithm, against=other)
    rows = [] if other is None else differences(other, algorithm)
    if output == "json":
        answer = {
            "algorithm": algorithm.name,
            "source": algorithm.source,
            "formulas": str(page.formulas).splitlines(),
            "page": str(page),
        }
        compared = {} if other is None else {"against": other.name, "differences": [asdict(row) for row in rows]}
        print_json(answer | compared)
        return
    if other is not None and not rows:
        console.print(f"{algorithm.name} and {other.name} do not differ.", markup=False)
        return
    if other is not None:
        columns, title = ("slot", other.name, algorithm.name, "why"), f"From {other.name} to {algorithm.name}"
        table = Table(*columns, title=title, title_justify="left", show_lines=console.is_terminal)
        for row in rows:
            table.add_row(f"[bold]{row.slot}[/]", *(plain(text) for text in (row.before, row.after, row.why)))
        wide_console().print(table)
        console.print(plain_lines(f"As mathematics, «…» is what differs:\n\n{page.formulas}\n"), soft_wrap=True)
    if console.is_terminal:
        language = "diff" if page.marked else "python"
        console.print(Syntax(str(page), language, theme="ansi_dark", background_color="default", word_wrap=True))
    elif page.marked:
        console.print(str(page), markup=False, soft_wrap=True)  # after the table, in the console's encoding as that is
    else:
        typer.echo(str(page).encode())  # a file of Python is UTF-8, whatever the console
