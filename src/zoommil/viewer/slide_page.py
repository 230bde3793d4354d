"""Row 15, slide page: one slide comes in; where the model looked and its answer go out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
from nicegui import ui
from nicegui.events import KeyEventArguments

from zoommil.errors import PredictionError, ZoomMILError
from zoommil.inference.prediction import Prediction
from zoommil.reports.frame import boxes_of, frame_of_prediction
from zoommil.reports.values import Quantity, Scale
from zoommil.viewer import panels
from zoommil.viewer.cohort import Order
from zoommil.viewer.endpoints import shown, told
from zoommil.viewer.library import Entry
from zoommil.viewer.overlay import Overlay, overlay_of
from zoommil.viewer.stage import PathBox, Stage
from zoommil.viewer.tiles import top_patches
from zoommil.viewer.viewer import Viewer
from zoommil.viewer.world import TileWorld

_LOOK_SECONDS = 0.25
_OPACITY_STEP = 0.1


class SlidePage:
    """The page of one slide; next and previous change the slide in place."""

    def __init__(self, viewer: Viewer, entry: Entry, order: Order) -> None:
        """Builds the page; what needs the file comes when it has been opened.

        Args:
            viewer: what the whole application shares.
            entry: the slide to begin with.
            order: of the cohort, for next and previous.
        """
        self.viewer = viewer
        self.order = order
        self.entry = entry
        self.prediction: Prediction | None = None
        self.position = 0
        self.quantity: Quantity = "attention"
        self.scale: Scale = "rank"
        self.opacity = panels.OPACITY
        self.stage: Stage | None = None
        self._path: list[PathBox] = []
        self._current = -1
        self._seen_version = -1
        self._run_number, self._num_seen = 0, 0
        self._has_boxes = True
        ui.keyboard(self._on_key, ignore=["input", "textarea"])
        self.top_bar = panels.TopBar(self)
        with ui.element("main").classes("zm-main"):
            self._stage_place = ui.element("section").classes("zm-stage")
            self._stage_place.props('aria-label="Slide"')
            with ui.element("aside").classes("zm-panel").props('aria-label="Prediction"'):
                self.panel = panels.Panel(self)
        self._help = panels.make_help()
        self._show_entry()
        ui.timer(_LOOK_SECONDS, self._look)

    # Which slide

    def go(self, places: int) -> None:
        """Show the slide so many places further in the cohort's order."""
        entries = self.viewer.ordered(self.order)
        keys = [entry.key for entry in entries]
        if self.entry.key not in keys:
            return
        index = keys.index(self.entry.key) + places
        if 0 <= index < len(entries):
            self.entry = entries[index]
            ui.navigate.history.replace(f"/slide/{self.entry.key}{self.order.query()}")
            self._show_entry()

    def place(self) -> tuple[int, int]:
        """Which slide of how many this is, counted from 1; 0 where the order leaves it out."""
        keys = [entry.key for entry in self.viewer.ordered(self.order)]
        return (keys.index(self.entry.key) + 1 if self.entry.key in keys else 0), len(keys)

    def _show_entry(self) -> None:
        ui.page_title(f"{self.entry.slide_id} – zoommil")
        self.top_bar.show()
        self.stage = None
        self._stage_place.clear()
        with self._stage_place, ui.element("div").classes("zm-waiting"):
            ui.spinner(size="28px", color="grey-5")
        run = self.viewer.live.run_of(self.entry.key)
        self._run_number, self._num_seen = (run.number, len(run.partials)) if run else (0, 0)
        self._seen_version = -1
        self._set_prediction(shown(self.viewer.library, self.viewer.live, self.entry.key))
        ui.timer(0, self._open, once=True)

    async def _open(self) -> None:
        """Open the file in a thread, then show it."""
        entry = self.entry
        problem, warnings = "", ()
        world = self._world_without_file()
        key = None
        if entry.path is not None:
            try:
                world, warnings = await asyncio.to_thread(self.viewer.look_at, entry.key)
                key = entry.key
            except (ZoomMILError, OSError, MemoryError) as error:
                problem = told(error)
        else:
            problem = "There is no file of this slide in the slides folder."
        if entry is not self.entry:
            return  # somebody went on meanwhile
        self._stage_place.clear()
        with self._stage_place:
            if world is not None:
                self.stage = Stage(world, key, self._on_click)
                self.stage.set_opacity(self.opacity)
                self.legend = panels.Legend()
            if problem:
                panels.say_problem(problem, has_stage=world is not None)
        self.panel.show_warnings(warnings)
        self._show_step(self.position)

    def _world_without_file(self) -> TileWorld | None:
        if self.prediction is None:
            return None
        try:
            frame = frame_of_prediction(self.prediction, longest_px=1 << 30)
        except PredictionError:
            return None
        return TileWorld.of_bounds((*frame.corner, frame.width, frame.height), frame.mpp)

    # What was predicted

    def _set_prediction(self, prediction: Prediction | None) -> None:
        self.prediction = prediction
        self.position = len(prediction.steps) - 1 if prediction is not None else 0
        self._path = [] if prediction is None else self._path_of(prediction)
        self._current = -1
        self.panel.show_prediction()
        self._show_step(self.position)

    def _path_of(self, prediction: Prediction) -> list[PathBox]:
        """The patches that were zoomed into, step by step, highest attention first."""
        self._has_boxes = all(step.boxes is not None for step in prediction.steps)
        if not self._has_boxes:
            return []
        found = []
        for position, step in enumerate(prediction.steps):
            if step.selected is None:
                continue
            patches = np.flatnonzero(np.isin(step.rows, step.selected))
            for patch in patches[np.argsort(-step.attention[patches], kind="stable")].tolist():
                found.append(PathBox(boxes_of(prediction, position)[patch], position, patch))
        return found

    def show_step(self, position: int) -> None:
        """Show where it looked at one step."""
        if self.prediction is not None and 0 <= position < len(self.prediction.steps):
            self._current = -1
            self._show_step(position)

    def _show_step(self, position: int) -> None:
        self.position = position
        self.panel.show_step()
        if self.stage is None:
            return
        self.stage.show_overlay(self._overlay())
        self.stage.show_boxes(self._path)
        self.stage.show_current(None)

    def _overlay(self) -> Overlay | None:
        found, reason = None, ""
        if self.prediction is not None and self._has_boxes:
            try:
                found = overlay_of(self.prediction, self.position, self.quantity, self.scale)
            except PredictionError as error:
                reason = told(error)
            if found is None and not reason:
                reason = "Nothing was chosen at this step, so it has no selection scores."
        elif self.prediction is not None:
            reason = "The prediction does not say where its patches lie."
        steps = () if self.prediction is None else self.prediction.steps
        self.legend.show(found, steps, self.position, reason)
        return found

    def set_overlay(self, quantity: Quantity, scale: Scale) -> None:
        """Show other values, or the same on another scale."""
        self.quantity, self.scale = quantity, scale
        if self.stage is not None:
            self.stage.show_overlay(self._overlay())

    def set_opacity(self, opacity: float) -> None:
        """How much of the overlay is seen, 0 to 1."""
        self.opacity = min(1.0, max(0.0, opacity))
        if self.stage is not None:
            self.stage.set_opacity(self.opacity)

    # Flying

    def targets(self) -> list[PathBox]:
        """What next and previous patch go through: those chosen here, else the top patches."""
        if self.prediction is None or not self._has_boxes:
            return []
        chosen = [one for one in self._path if one.position == self.position]
        return chosen or self.best()

    def best(self) -> list[PathBox]:
        """The patches of this step with the highest attention."""
        if self.prediction is None or not self._has_boxes:
            return []
        boxes = boxes_of(self.prediction, self.position)
        best = top_patches(self.prediction, self.position)
        return [PathBox(boxes[patch], self.position, patch) for patch in best]

    def next_patch(self, places: int) -> None:
        """Fly to the next of the targets, round and round."""
        targets = self.targets()
        if targets:
            start = -1 if self._current < 0 and places > 0 else max(self._current, 0)
            self._current = (start + places) % len(targets)
            self.fly_to(targets[self._current], self._current, len(targets))

    def fly_to(self, target: PathBox, index: int | None = None, total: int | None = None) -> None:
        """Fly to a patch and say which it is."""
        if self.stage is not None:
            self.stage.show_current(target.box)
            self.stage.fly_to(target.box)
        self.panel.say_current(target, index, total)

    def _on_click(self, x: float, y: float) -> None:
        """Fly to the smallest chosen patch under a click that is not flown to already."""
        under = [one for one in self._path if _contains(one, x, y)]
        if under:
            finest = min(under, key=lambda one: one.box[2])
            targets = self.targets()
            index = _index_of(finest, targets)
            self._current = -1 if index is None else index
            self.fly_to(finest, index, len(targets))

    def let_go(self) -> None:
        """Show the whole slide again, no patch in particular."""
        self._current = -1
        self.panel.say_none()
        if self.stage is not None:
            self.stage.show_current(None)
            self.stage.fit()

    # Predicting now

    def predict(self) -> None:
        """Begin to predict this slide."""
        try:
            self.viewer.predict(self.entry)
        except ZoomMILError as error:
            ui.notify(told(error), type="warning")
        self._look()

    def stop(self) -> None:
        """Stop predicting."""
        self.viewer.live.stop()
        self._look()

    def _look(self) -> None:
        """Show what arrived since the last look; of steps that came together, the next one."""
        live = self.viewer.live
        run = live.run_of(self.entry.key)
        if live.version != self._seen_version:
            self._seen_version = live.version
            self.panel.show_run(run, live.current)
        if run is None:
            return
        if run.number != self._run_number:
            self._run_number, self._num_seen = run.number, 0
        if self._num_seen < len(run.partials):
            self._num_seen += 1
            self._set_prediction(run.partials[self._num_seen - 1])

    # Keys

    def show_help(self) -> None:
        """Show the list of keys."""
        self._help.open()

    def _on_key(self, event: KeyEventArguments) -> None:
        if not event.action.keydown or event.modifiers.ctrl or event.modifiers.meta:
            return
        key = event.key.name
        if self._help.value:
            return  # Escape closes it
        if key.isdigit() and key != "0":
            self.show_step(int(key) - 1)
        elif key in self._keys():
            self._keys()[key]()

    def _keys(self):
        return {
            "j": lambda: self.go(1),
            "k": lambda: self.go(-1),
            "n": lambda: self.next_patch(1),
            "p": lambda: self.next_patch(-1),
            "[": lambda: self.panel.set_opacity(self.opacity - _OPACITY_STEP),
            "]": lambda: self.panel.set_opacity(self.opacity + _OPACITY_STEP),
            "o": self.panel.toggle_overlay,
            "0": lambda: self.stage.fit() if self.stage else None,
            "f": lambda: self.stage.fit() if self.stage else None,
            "Escape": self.let_go,
            "?": self.show_help,
            "b": lambda: ui.navigate.to(f"/{self.order.query()}"),
        }


def _contains(one: PathBox, x: float, y: float) -> bool:
    left, top, width, height = one.box
    return bool(left <= x < left + width and top <= y < top + height)


def _index_of(wanted: PathBox, targets: Sequence[PathBox]) -> int | None:
    names = [(one.position, one.patch) for one in targets]
    name = (wanted.position, wanted.patch)
    return names.index(name) if name in names else None
