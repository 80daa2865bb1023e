"""A panel whose page is gone stops, one whose page is there does not, and a script has no page; other runs are told."""

import asyncio
import time
from dataclasses import replace

import pytest
from filelock import FileLock

from rlviz.runs import page, panel, under_way
from rlviz.runs.page import SILENT_TICKS, TICK_SECONDS, PageLink
from rlviz.runs.panel import seconds_in_words, training_panel
from rlviz.runs.playground import playground
from rlviz.runs.under_way import UnderWay
from rlviz.training import TrainSettings

pytestmark = pytest.mark.usefixtures("axes_stay")

TINY = TrainSettings(steps=6, num_prompts=4, group_size=4, evaluate_every=0)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))


@pytest.fixture
def quick(monkeypatch):
    """A tick of 10 ms: silent after 0.15 s."""
    monkeypatch.setattr(page, "TICK_SECONDS", 0.01)


def link():
    gone = []
    return PageLink(lambda: gone.append(time.monotonic())), gone


def test_silence_is_noticed_within_twenty_seconds_and_one_lost_beat_is_none():
    assert 2 * 5 < SILENT_TICKS * TICK_SECONDS <= 15


def test_a_page_that_falls_silent_is_gone_and_may_come_back(quick):
    async def tell():
        told, gone = link()
        for beat in range(20):
            told.beat = beat + 1
            await asyncio.sleep(0.03)
        assert not gone
        await asyncio.sleep(0.6)
        assert len(gone) == 1
        told.beat = 100
        await asyncio.sleep(0.03)
        assert len(gone) == 1
        await asyncio.sleep(0.6)
        assert len(gone) == 2

    asyncio.run(tell())


def test_a_cell_that_keeps_the_kernel_busy_is_no_silence(quick):
    async def tell():
        told, gone = link()
        told.beat = 1
        await asyncio.sleep(0.03)
        time.sleep(0.5)  # the loop hears nothing, as while a cell runs
        told.beat = 2
        await asyncio.sleep(0.03)
        assert not gone

    asyncio.run(tell())


def test_a_page_that_never_spoke_is_not_missed(quick):
    async def wait():
        _, gone = link()
        await asyncio.sleep(0.4)
        assert not gone

    asyncio.run(wait())
    told, gone = link()
    told.beat = 1  # a script: no loop runs
    time.sleep(0.4)
    assert not gone


def test_a_run_whose_page_is_gone_stops_and_says_so(quick):
    async def train():
        widget = training_panel(settings=replace(TINY, steps=5000))
        widget._page.beat = 1
        widget.start()
        for _ in range(600):
            await asyncio.sleep(0.05)
            if not widget._running:
                break
        widget.wait(30)
        assert widget.caption.startswith("Stopped, because its page is gone; Resume goes on from here.")
        assert len(widget.records) < 5000
        return widget

    widget = asyncio.run(train())
    assert not widget.resume_button.disabled


def test_other_runs_are_told_until_they_end():
    one, two = UnderWay(), UnderWay()
    assert one.others() == two.others() == 0
    with two.begun():
        assert one.others() == 1
        assert two.others() == 0
        with one.begun():
            assert two.others() == 1
        assert two.others() == 0
    assert one.others() == 0
    killed = under_way._folder() / "1-abc.lock"
    FileLock(killed).acquire()  # let go at once, as by a process that ends
    assert one.others() == 0
    assert not killed.exists()


def test_the_caption_tells_of_another_run_and_of_the_time_left(monkeypatch):
    monkeypatch.setattr(panel, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(panel, "REDRAW_SECONDS", 0.0)
    for widget in (training_panel(settings=TINY), playground(settings=TINY)):
        captions = []
        widget._words.observe(lambda change, captions=captions: captions.append(change["new"]), "value")
        with UnderWay().begun():
            widget.start()
            widget.wait(120)
        training = [caption for caption in captions if "Training." in caption]
        assert training
        assert all("Another run is training on this computer too" in caption for caption in training)
        assert all(" s left)" in caption for caption in training[:-1])
        assert "left" not in widget.caption and "Another" not in widget.caption
        assert "Done." in widget.caption


def test_the_time_left_counts_the_seeds_to_come():
    widget = playground(settings=TINY, seeds=3)
    widget._prepare()
    widget._running = True
    widget._step_seconds.extend([2.0, 4.0])
    assert widget._steps_left == 18
    assert widget._time_left == " (about 54 s left)"  # 18 steps of (2 + 4) / 2 s
    assert [seconds_in_words(seconds) for seconds in (0.2, 41.4, 170)] == ["about 1 s", "about 41 s", "about 3 min"]


def test_the_table_and_the_caption_have_their_place_before_there_is_a_run():
    for widget in (training_panel(settings=TINY), playground(settings=TINY)):
        assert widget._table.layout.height == panel.TABLE_HEIGHT
        assert widget._words.layout.min_height == panel.CAPTION_HEIGHT
