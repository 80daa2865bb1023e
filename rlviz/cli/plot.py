"""`rlviz plot NAME`: an explorer's picture in a file. Its options are the explorer's arguments, read off the signature."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlviz.cli.options import PLAIN, Option, Reader, reader_of, with_options
from rlviz.cli.terminal import check_out, check_picture, say
from rlviz.pictures.catalogue import EXPLORERS, find_explorer

if TYPE_CHECKING:
    from rlviz.algorithms import Algorithm

HELP = ["-h", "--help"]
READ_LATER = {"help_option_names": [], "allow_extra_args": True, "ignore_unknown_options": True}


def plot(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help=f"Picture: {', '.join(EXPLORERS)}.", show_default=False)] = "--help",
) -> None:
    """Draw a picture of the course into a file: **rlviz plot clip --out clip.svg --eps-high .5**

    Every slider of the picture is an option: **rlviz plot clip --help** lists them. PNG, SVG or PDF, by the ending of --out;
    HTML answers to its sliders in any browser.
    """
    if name in HELP:
        typer.echo(context.get_help())
        return
    command = picture_command(name)
    with command.make_context(f"{context.command_path} {name}", context.args, help_option_names=HELP) as picture:
        command.invoke(picture)


def picture_command(name: str) -> Any:
    """Return the command that draws one picture; each of its explorer's arguments is an option.

    Raises ValueError for an unknown name.
    """
    from rlviz.algorithms import ALGORITHMS, RELATIVES, command_name
    from rlviz.page.style import DESCRIPTION, save_figure
    from rlviz.page.widget import page
    from rlviz.training.files import write_text

    spec = find_explorer(name).spec

    @with_options(arguments=explorer_options(spec))
    def draw(
        arguments: dict[str, Any],
        out: Annotated[Path, typer.Option(help="PNG, SVG, PDF, or HTML that can be touched.")] = Path(f"{name}.png"),
        small_multiples: Annotated[
            bool,
            typer.Option("--small-multiples", help="Several settings side by side, as the course prints them."),
        ] = False,
    ) -> None:
        check_picture(out, ".html")
        check_out(out)
        if out.suffix.lower() != ".html":
            figure, words = on_paper(spec, arguments, several=small_multiples)
            save_figure(figure, out, description=words)
        elif small_multiples:
            raise ValueError(f"out must end in {', '.join(DESCRIPTION)} with --small-multiples; got {out.name}")
        else:
            explorer = find_explorer(name)(**arguments)
            words = explorer.caption
            out.parent.mkdir(parents=True, exist_ok=True)
            write_text(out, page(f"rlviz: {name}", explorer.html()))
        say(f"{out}: {words}")

    about = f"{spec.picture.title} {spec.picture.alt}"
    app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    names = ", ".join(command_name(member) for member in (*ALGORITHMS, *RELATIVES))
    app.command(help=about, epilog=f"Algorithms: {names}")(draw)
    return typer.main.get_command(app)


def on_paper(spec: Any, arguments: dict[str, Any], *, several: bool) -> tuple[Any, str]:
    """Return a figure of the explorer's picture and its words: at these arguments, or at each of its named settings."""
    from rlviz.pictures import Explorer, small_multiples

    if not several:
        explorer = Explorer(spec, arguments)
        return explorer.figure(), explorer.caption
    every = {label: Explorer(spec, {**setting, **arguments}) for label, setting in spec.named.items()}
    figure = small_multiples(list(every.values()), list(every))
    return figure, " ".join(f"{label}: {explorer.caption}" for label, explorer in every.items())


def explorer_options(spec: Any) -> dict[str, Option]:
    """Return an option for each argument of an `ExplorerSpec`."""
    return {name: _option(spec, name, control) for name, control in spec.controls.items()}


def _option(spec: Any, name: str, control: Any) -> Option:
    """Return the option of one control: its reader by what the control is, its help by what the control says."""
    from rlviz.algorithms import find_algorithm
    from rlviz.page.picture import Beside, Choice
    from rlviz.pictures.spec import describe_control

    if name == "algorithm":
        reader, about = Reader(find_algorithm, "<name>", ""), "Algorithm."
    else:
        about = f"{describe_control(control)}."
        if isinstance(control, Beside):
            reader = Reader(_algorithms, "<name,name>", "")
        elif isinstance(control, Choice):
            reader, about = PLAIN[str], f"{control.label}. One of: {'; '.join(map(str, control.options.values()))}."
        elif control.many:
            integers = Reader(_counts, "<int,int,…>", "whole numbers with commas")
            reader = integers if control.step == 1 else Reader(_numbers, "<float,float,…>", "numbers with commas")
        else:
            reader = reader_of(int if isinstance(control.step, int) and not control.stops else float)
    default = spec.signature.parameters[name].default
    is_its = spec.algorithms is not None and name in spec.algorithms.parameters
    return Option(reader, f"{about} [default: {'the algorithm’s own' if is_its else _written(default)}]")


def _counts(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(number) for number in text.split(","))


def _algorithms(text: str) -> tuple[Algorithm, ...]:
    from rlviz.algorithms import find_algorithm

    return tuple(find_algorithm(name) for name in text.split(",") if name.strip())


def _written(default: Any) -> str:
    """Return a default value as one would type it."""
    from rlviz.algorithms import command_name

    if default is None:
        return "none"
    if isinstance(default, tuple):
        return ",".join(map(_written, default)) or "none"
    return command_name(default) if hasattr(default, "slots") else str(default)
