"""Build the site: in a new folder beside the target, which replaces the target when it is complete."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from pygments.formatters import HtmlFormatter

from rlviz.page.script import classic
from rlviz.runs.playground import TAB_FILES
from rlviz.site.html import File
from rlviz.site.lessons import course_pages
from rlviz.site.pages import SECTIONS
from rlviz.site.search import search_index
from rlviz.site.teaching import teaching_pages

MARK = ".rlviz-site.json"  # in the site's folder: the files that are the site's
STYLE = Path(__file__).with_name("site.css")


def files(course: Path) -> Iterator[File]:
    """Return the files of the site. course: the folder of the notebooks."""
    for section in SECTIONS:
        yield from section()
    yield from course_pages(course)
    yield from teaching_pages(course)
    yield search_index(course)
    yield script()
    light, dark = (HtmlFormatter(style=style).get_style_defs(".highlight") for style in ("default", "github-dark"))
    code_colours = f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"
    yield File("site.css", f"{STYLE.read_text(encoding='utf-8')}\n{code_colours}")


def script() -> File:
    """Return the one script of all pages: pictures that are computed, a model that trains, runs that are inspected."""
    return File("rlviz.js", classic(*TAB_FILES, "inspector", "search", "site"))


def build(out: Path, course: Path) -> list[str]:
    """Write the site to `out`, and return the names of its files.

    course: the folder of the notebooks. Raises ValueError where `out` holds files that are not an earlier site's.
    """
    refuse_foreign(out)
    target = out.resolve()
    fresh, earlier = (target.with_name(f".{target.name}.{age}") for age in ("new", "old"))
    # A build that was killed left what it had written, and between its two renames the earlier site beside it.
    if earlier.exists() and not target.exists():
        os.replace(earlier, target)
    for folder in (fresh, earlier):
        shutil.rmtree(folder, ignore_errors=True)
    try:
        names = []
        for file in files(course):
            file.write(fresh)
            names.append(file.path)
        (fresh / MARK).write_text(json.dumps(sorted(names), indent=0), encoding="utf-8")
        if target.exists():
            os.replace(target, earlier)
        os.replace(fresh, target)
        shutil.rmtree(earlier, ignore_errors=True)
    except OSError as error:
        if error.errno and not error.filename:  # the disk is full
            error.filename = str(out)
        raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return names


def refuse_foreign(out: Path) -> None:
    """Raise ValueError where a folder holds a file that no earlier site wrote there, or `out` is no folder."""
    if not out.exists():
        return
    if not out.is_dir():
        raise ValueError(f"out must be a folder; {out} is a file")
    mark = out / MARK
    try:
        known = {MARK, *json.loads(mark.read_text(encoding="utf-8"))} if mark.is_file() else set()
    except (ValueError, TypeError):
        known = set()
    names = (path.relative_to(out).as_posix() for path in sorted(out.rglob("*")) if not path.is_dir())
    if foreign := [name for name in names if name not in known]:
        raise ValueError(f"out must be an empty folder or an earlier site; {out} holds {foreign[0]}, which is neither")
