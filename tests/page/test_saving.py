"""A notebook that is saved with live pictures: a later kernel knows no widget, so a page, a PNG or a sentence stands there."""

from rlviz.page.saving import NOTHING, STATE, STILL, VIEW, replace_views


def output(**data):
    names = {"view": VIEW, "png": "image/png", "html": "text/html", "plain": "text/plain"}
    return {"output_type": "display_data", "metadata": {}, "data": {names[name]: value for name, value in data.items()}}


def test_views_of_widgets_give_way_to_what_needs_no_kernel():
    view = {"model_id": "a"}
    explorer, panel, slider = (
        output(view=view, html="<div>"),
        output(view=view, png="…"),
        output(view=view, plain="IntSlider"),
    )
    alive, text = output(view={"model_id": "b"}), output(plain="3")
    cells = [{"outputs": [explorer, panel]}, {"outputs": [slider, alive, text]}, {"source": "no outputs"}]
    content = {"cells": cells, "metadata": {"widgets": {STATE: {"state": {"b": {}}}}}}
    replace_views({"type": "notebook", "content": content})
    assert cells[0]["outputs"] == [output(html="<div>"), output(png="…"), output(plain=STILL)]
    assert cells[1]["outputs"] == [output(plain=NOTHING), output(view={"model_id": "b"}), output(plain="3")]
    assert cells[2] == {"source": "no outputs"}


def test_what_is_no_notebook_stays():
    for model in ({"type": "file", "content": "x"}, {"type": "notebook", "content": None}):
        before = dict(model)
        replace_views(model)
        assert model == before
