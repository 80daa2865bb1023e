"""`rlviz plot NAME`: an explorer's picture in a file. Its options are the explorer's arguments, read off the signature."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rlviz.cli.options import Option, number, with_options
from rlviz.cli.terminal import check_out, say
from rlviz.pictures.catalogue import EXPLORERS, find_explorer

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
        check_out(out, *(DESCRIPTION if small_multiples else [*DESCRIPTION, ".html"]))
        arguments = {key: _read(key, spec.controls[key], value) for key, value in arguments.items()}
        if out.suffix.lower() != ".html":
            figure, words = on_paper(spec, arguments, several=small_multiples)
            save_figure(figure, out, description=words)
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
    """Return the option of one control: its type by what the control is, its help by what the control says."""
    from rlviz.page.picture import Choice, Slider
    from rlviz.pictures.spec import describe_control

    about = f"{describe_control(control)}."
    if name == "algorithm":
        about = "Algorithm."
    elif isinstance(control, Choice):
        about = f"{control.label}. One of: {'; '.join(map(str, control.options.values()))}."
    is_number = isinstance(control, Slider) and not control.many
    default = spec.signature.parameters[name].default
    is_its = spec.algorithms is not None and name in spec.algorithms.parameters
    help_line = f"{about} [default: {'the algorithm’s own' if is_its else _written(default)}]"
    return Option((int if _is_whole(control) else float) if is_number else str, help_line)


def _is_whole(slider: Any) -> bool:
    return isinstance(slider.step, int) and not slider.stops


def _read(name: str, control: Any, value: Any) -> Any:
    """Return a control's value from what was typed: an algorithm, algorithms or numbers with commas, or the value itself."""
    from rlviz.algorithms import find_algorithm
    from rlviz.page.picture import Beside, Slider

    if name == "algorithm":
        return find_algorithm(value)
    if isinstance(control, Beside):
        return tuple(find_algorithm(one) for one in value.split(",") if one.strip())
    if isinstance(control, Slider) and control.many:
        return tuple(number(name, one, int if control.step == 1 else float) for one in value.split(","))
    return value


def _written(default: Any) -> str:
    """Return a default value as one would type it."""
    from rlviz.algorithms import command_name

    if default is None:
        return "none"
    if isinstance(default, tuple):
        return ",".join(map(_written, default)) or "none"
    return command_name(default) if hasattr(default, "slots") else str(default)
