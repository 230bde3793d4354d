"""Row 15, panels: what is written beside the slide: answer, steps, overlay, path, patches, cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nicegui import ui

from zoommil.inference.prediction import PredictedStep, Prediction
from zoommil.units import magnification_label
from zoommil.viewer.elements import button, group, link, picture, set_prop, text
from zoommil.viewer.live import LiveRun
from zoommil.viewer.overlay import Overlay, colour_bar
from zoommil.viewer.stage import PATH_COLOURS, PATH_DASHES, PathBox

if TYPE_CHECKING:
    from zoommil.viewer.slide_page import SlidePage

KEYS = (
    ("j  k", "next, previous slide"),
    ("1 – 9", "step, lowest magnification first"),
    ("n  p", "fly to the next, previous patch"),
    ("[  ]", "overlay fainter, stronger"),
    ("o", "overlay off and on"),
    ("f", "whole slide"),
    ("arrows  +  −", "pan and zoom, with the slide in focus"),
    ("Esc", "let go of the patch, whole slide"),
    ("b", "back to the cohort"),
    ("?", "this list"),
    ("Tab  Enter", "reach and press everything else"),
)
OPACITY = 0.4
"""Of the overlay at first: its colours are told apart and the tissue is still seen."""

_QUANTITIES = {"attention": "Attention", "score": "Selection score"}
_SCALES = {"rank": "Rank", "raw": "Value"}


def make_help() -> ui.dialog:
    """The list of keys, closed at first."""
    with ui.dialog() as dialog, group("zm-help"):
        text("Keys", "zm-help-title", "h2")
        for keys, what in KEYS:
            with group("zm-help-row"):
                text(keys, "zm-keys", "kbd")
                text(what)
        button("Close", dialog.close, "zm-quiet")
    return dialog


def say_problem(problem: str, *, has_stage: bool) -> None:
    """Say on the stage why no pixels are shown."""
    with group("zm-problem zm-problem-small" if has_stage else "zm-problem").props("role=alert"):
        text("The slide cannot be shown", "zm-problem-title", "h2")
        text(problem, tag="p")


class TopBar:
    """The slide's name, where it stands in the cohort, and the way to the next."""

    def __init__(self, page: SlidePage) -> None:
        """Args: page: it belongs to."""
        self._page = page
        with group("zm-bar", "header"):
            link("← Cohort", f"/{page.order.query()}", "zm-back").props('title="Back (b)"')
            self._title = text("", "zm-title", "h1")
            self._case = text("", "zm-muted zm-case")
            group("zm-space")
            self._place = text("", "zm-muted zm-number zm-place")
            with group("zm-turn"):
                self._before = button(
                    "‹", lambda: page.go(-1), "zm-icon", says="Previous slide", keys="k"
                )
                self._after = button(
                    "›", lambda: page.go(1), "zm-icon", says="Next slide", keys="j"
                )
                button("?", page.show_help, "zm-icon zm-quiet", says="Keys", keys="?")

    def show(self) -> None:
        """Show where the page is now."""
        entry = self._page.entry
        place, number = self._page.place()
        self._title.set_text(entry.slide_id)
        self._case.set_text(entry.case_id or "")
        self._place.set_text(f"{place} of {number}" if place else f"– of {number}")
        set_prop(self._before, "disabled", place <= 1)
        set_prop(self._after, "disabled", not 0 < place < number)


class Legend:
    """What the colours and lines on the stage mean."""

    def __init__(self) -> None:
        """Made in the slot it is to appear in."""
        self._place = group("zm-legend").props('aria-label="Legend"')

    def show(
        self, overlay: Overlay | None, steps: tuple[PredictedStep, ...], position: int, reason: str
    ) -> None:
        """Explain the overlay of a step and the outlines; where there is none, say why.

        Args:
            overlay: that is shown.
            steps: of the prediction.
            position: of the step that is shown.
            reason: why there is no overlay.
        """
        self._place.clear()
        with self._place:
            if overlay is not None:
                name = _step_name(steps[position], position)
                text(f"{_QUANTITIES[overlay.quantity]} at {name}", "zm-legend-title")
                group("zm-ramp").style(f"background: {colour_bar()}")
                with group("zm-ends"):
                    for end in _ends(overlay):
                        text(end)
            elif reason:
                text(reason, "zm-muted", "p")
            for place, step in enumerate(steps):
                if step.selected is not None and step.boxes is not None:
                    _explain_line(place, _step_name(step, place))


class Panel:
    """Everything beside the slide."""

    def __init__(self, page: SlidePage) -> None:
        """Made in the slot it is to appear in."""
        self._page = page
        self._steps: list[Any] = []
        self._opacity_before = OPACITY
        self._answer = group("zm-section zm-answer")
        self._make_live()
        with group("zm-section"):
            text("Where it looked", "zm-heading", "h2")
            self._steps_place = group("zm-steps").props('role=group aria-label="Steps"')
        self._make_overlay()
        self._make_path()
        with group("zm-section") as self._best_section:
            self._best_title = text("Highest attention", "zm-heading", "h2")
            self._best = group("zm-best")
        self._cost = group("zm-section")
        self._notes = group("zm-section zm-notes")
        self._warnings: tuple[str, ...] = ()

    # The prediction as a whole

    def show_prediction(self) -> None:
        """Show the answer, the steps and the cost of what the page shows now."""
        prediction = self._page.prediction
        self._show_answer(prediction)
        self._steps_place.clear()
        self._steps = []
        with self._steps_place:
            for position, step in enumerate(prediction.steps if prediction else ()):
                assert prediction is not None
                self._steps.append(self._step_button(prediction, position, step))
            if prediction is None:
                text("Not predicted yet.", "zm-muted", "p")
        for section in (self._overlay_section, self._path_section, self._best_section):
            section.set_visibility(prediction is not None)
        self._show_cost(prediction)
        self._show_notes()

    def _show_answer(self, prediction: Prediction | None) -> None:
        self._answer.clear()
        label = self._page.entry.label
        with self._answer:
            if prediction is None:
                text("No prediction", "zm-predicted", "p")
                text(f"Label: {label}" if label else "No label known", "zm-muted", "p")
                return
            text("Predicted" if prediction.is_final else "So far", "zm-eyebrow", "p")
            text(prediction.label, "zm-predicted", "p")
            _say_truth(prediction.label, label)
            with group("zm-bars").props('aria-label="Probabilities"'):
                for name, value in prediction.probabilities.items():
                    _bar(name, value, is_first=name == prediction.label, is_true=name == label)

    def _step_button(self, prediction: Prediction, position: int, step: PredictedStep) -> Any:
        made = button("", lambda: self._page.show_step(position), "zm-step")
        best = max(range(len(step.probabilities)), key=step.probabilities.__getitem__)
        name = list(prediction.probabilities)[best]
        chosen = "" if step.selected is None else f", {len(step.selected)} chosen"
        with made:
            text(_step_name(step, position), "zm-step-name")
            with group("zm-step-what", "span"):
                text(f"{len(step.rows):,} patches{chosen}")
                text(f"{name} {step.probabilities[best]:.2f}", "zm-muted")
            text(str(position + 1), "zm-keys", "kbd").props("aria-hidden=true")
        return made

    def _show_cost(self, prediction: Prediction | None) -> None:
        self._cost.clear()
        if prediction is None:
            return
        cost, whole = prediction.cost, prediction.exhaustive_cost
        seconds = prediction.measured.seconds.get("total")
        with self._cost:
            text("What it took", "zm-heading", "h2")
            _compare(
                "patches", cost.patches, whole.patches, f"{cost.patches:,}", f"{whole.patches:,}"
            )
            _compare("GFLOP", cost.flops, whole.flops, _gflop(cost.flops), _gflop(whole.flops))
            saved = f"{whole.flops / cost.flops:.1f}× fewer operations. " if cost.flops else ""
            took = f"{seconds:.1f} s." if seconds else ""
            text(f"Of every patch of the highest magnification. {saved}{took}", "zm-muted", "p")

    def show_warnings(self, warnings: tuple[str, ...]) -> None:
        """What one should know about the file."""
        self._warnings = warnings
        self._show_notes()

    def _show_notes(self) -> None:
        self._notes.clear()
        prediction, key = self._page.prediction, self._page.entry.key
        notes = [*self._warnings, *(prediction.warnings if prediction else ())]
        with self._notes:
            for note in dict.fromkeys(notes):
                text(note, "zm-note", "p")
            if prediction is not None:
                with group("zm-links"):
                    link("GeoJSON for QuPath", f"/geojson/{key}.geojson")
                    link("Prediction as JSON", f"/predictions/{key}.json")
            text("For research. Not for diagnosis.", "zm-muted", "p")

    # One step

    def show_step(self) -> None:
        """Mark the step the page shows, and show its patches."""
        for position, made in enumerate(self._steps):
            set_prop(made, "aria-pressed", "true" if position == self._page.position else "false")
        self._best.clear()
        self._show_path()
        prediction, entry = self._page.prediction, self._page.entry
        if prediction is None:
            self._best_title.set_text("Highest attention")
            return
        step = prediction.steps[self._page.position]
        name = _step_name(step, self._page.position)
        self._best_title.set_text(f"Highest attention at {name}")
        run = self._page.viewer.live.run_of(entry.key)
        version = run.version if run is not None else 0
        with self._best:
            for rank, target in enumerate(self._page.best()):
                value = float(step.attention[target.patch])
                said = f"Patch {rank + 1} by attention, {value:.3f}. Fly to it."
                made = button(
                    "", lambda target=target: self._page.fly_to(target), "zm-patch", says=said
                )
                with made:
                    if entry.path is not None:
                        place = f"/patches/{entry.key}/{version}/{self._page.position}/{rank}.jpg"
                        picture(place, "")
                    text(f"{value:.3f}", "zm-number")

    # Overlay

    def _make_overlay(self) -> None:
        with group("zm-section") as self._overlay_section:
            text("Overlay", "zm-heading", "h2")
            with group("zm-row"):
                self._quantities = self._choices(_QUANTITIES, "Values", self._set_quantity)
                self._scales = self._choices(_SCALES, "Scale", self._set_scale)
            with group("zm-row zm-opacity"):
                text("Opacity", "zm-muted")
                slider = ui.slider(min=0, max=100, step=5, value=100 * OPACITY)
                slider.props('aria-label="Opacity of the overlay" color=blue-grey-3')
                slider.LOOPBACK = slider._props["loopback"] = False  # no echo while it moves
                slider.on_value_change(lambda event: self._opacity_moved(event.value))
                self._slider = slider
                self._percent = text(f"{100 * OPACITY:.0f}%", "zm-number")
        self._mark_choices()

    def _choices(self, names: dict[str, str], says: str, choose: Any) -> dict[str, Any]:
        made = {}
        with group("zm-choices").props(f'role=group aria-label="{says}"'):
            for name, shown in names.items():
                made[name] = button(shown, lambda name=name: choose(name), "zm-choice")
        return made

    def _set_quantity(self, quantity: Any) -> None:
        self._page.set_overlay(quantity, self._page.scale)
        self._mark_choices()

    def _set_scale(self, scale: Any) -> None:
        self._page.set_overlay(self._page.quantity, scale)
        self._mark_choices()

    def _mark_choices(self) -> None:
        for names, now in (
            (self._quantities, self._page.quantity),
            (self._scales, self._page.scale),
        ):
            for name, made in names.items():
                set_prop(made, "aria-pressed", "true" if name == now else "false")

    def _opacity_moved(self, percent: Any) -> None:
        if isinstance(percent, (int, float)) and 0 <= percent <= 100:
            self._percent.set_text(f"{percent:.0f}%")
            self._page.set_opacity(percent / 100)

    def set_opacity(self, opacity: float) -> None:
        """Move the slider, and the overlay with it."""
        self._slider.set_value(round(100 * min(1.0, max(0.0, opacity))))

    def toggle_overlay(self) -> None:
        """Hide the overlay, or show it as before."""
        if self._page.opacity > 0:
            self._opacity_before = self._page.opacity
            self.set_opacity(0)
        else:
            self.set_opacity(self._opacity_before)

    # Path

    def _make_path(self) -> None:
        with group("zm-section") as self._path_section:
            text("Zoom path", "zm-heading", "h2")
            self._path_said = text("", "zm-muted", "p")
            with group("zm-row zm-travel"):
                self._back = button(
                    "‹",
                    lambda: self._page.next_patch(-1),
                    "zm-icon",
                    says="Previous patch",
                    keys="p",
                )
                self._on = button(
                    "›", lambda: self._page.next_patch(1), "zm-icon", says="Next patch", keys="n"
                )
                self._current = text("", "zm-current", "p").props("aria-live=polite")

    def _show_path(self) -> None:
        prediction, targets = self._page.prediction, self._page.targets()
        for made in (self._back, self._on):
            set_prop(made, "disabled", not targets)
        self.say_none()
        said = ""
        if prediction is not None and targets:
            step = prediction.steps[self._page.position]
            name = _step_name(step, self._page.position)
            chosen = f"{len(targets)} patches were chosen at {name} to look closer."
            said = (
                chosen if step.selected is not None else f"It stopped at {name}; its top patches."
            )
        self._path_said.set_text(said)

    def say_none(self) -> None:
        """Say that no patch is flown to."""
        self._current.set_text("")

    def say_current(self, target: PathBox, index: int | None, total: int | None) -> None:
        """Say which patch is flown to."""
        prediction = self._page.prediction
        if prediction is None:
            return
        step = prediction.steps[target.position]
        values = [f"attention {float(step.attention[target.patch]):.4f}"]
        if step.scores is not None:
            values.append(f"score {float(step.scores[target.patch]):.4f}")
        where = f"{index + 1} of {total}, " if index is not None and total else ""
        self._current.set_text(f"{where}{_step_name(step, target.position)}: {', '.join(values)}")

    # Predicting now

    def _make_live(self) -> None:
        with group("zm-section zm-live"):
            self._predict = button("Predict now", self._page.predict, "zm-primary")
            self._stop = button("Stop", self._page.stop, "zm-quiet")
            self._said = text("", "zm-muted", "p").props("role=status aria-live=polite")

    def show_run(self, run: LiveRun | None, current: LiveRun | None) -> None:
        """Show how far the prediction of this slide is."""
        is_mine = current is not None and current.key == self._page.entry.key
        can = self._page.viewer.live.settings is not None and self._page.entry.path is not None
        set_prop(self._predict, "disabled", not can or current is not None)
        self._stop.set_visibility(is_mine)
        self._said.set_text(self._said_of(run, current, is_mine, can))

    def _said_of(
        self, run: LiveRun | None, current: LiveRun | None, is_mine: bool, can: bool
    ) -> str:
        if is_mine and run is not None:
            return _progress_of(run)
        if current is not None:
            return "Another slide is being predicted."
        if not can:
            has_file = self._page.entry.path is not None
            return "Start with --artefact DIR to predict." if has_file else "There is no file."
        if run is None:
            return "Runs the model on this slide, step by step."
        if run.status == "failed":
            return f"Failed: {run.reason}"
        return "Stopped." if run.status == "stopped" else "Predicted now; not written to a file."


def _explain_line(position: int, name: str) -> None:
    with group("zm-legend-row"):
        colour = PATH_COLOURS[position % len(PATH_COLOURS)]
        style = "dashed" if PATH_DASHES[position % len(PATH_DASHES)] else "solid"
        group("zm-swatch").style(f"border: 2px {style} {colour}")
        text(f"zoomed into at {name}")


def _progress_of(run: LiveRun) -> str:
    if run.status == "loading":
        return "Loading the model …"
    done = len(run.partials)
    patches = f" {run.patches:,} patches encoded." if run.patches else ""
    return f"Looking at step {done + 1} …{patches}"


def _say_truth(predicted: str, label: str | None) -> None:
    if label is None:
        text("No label known", "zm-muted", "p")
        return
    agrees = predicted == label
    with group("zm-truth zm-agrees" if agrees else "zm-truth zm-differs", "p"):
        text("✓" if agrees else "≠", "zm-mark").props("aria-hidden=true")
        text(f"agrees with the label {label}" if agrees else f"the label says {label}")


def _bar(name: str, value: float, *, is_first: bool, is_true: bool) -> None:
    with group("zm-bar-row zm-first" if is_first else "zm-bar-row"):
        text(f"{name} · label" if is_true else name, "zm-bar-name")
        text(f"{value:.3f}", "zm-number")
        with group("zm-track"):
            group("zm-fill").style(f"width: {100 * value:.2f}%")


def _compare(what: str, part: float, whole: float, said: str, said_whole: str) -> None:
    share = min(1.0, part / whole) if whole else 1.0
    with group("zm-bar-row"):
        text(f"{said} of {said_whole} {what}", "zm-bar-name")
        text(f"{100 * part / whole:.0f}%" if whole else "", "zm-number")
        with group("zm-track"):
            group("zm-fill zm-cost").style(f"width: {100 * share:.2f}%")


def _gflop(flops: int) -> str:
    return f"{flops / 1e9:,.0f}" if flops >= 1e10 else f"{flops / 1e9:.2g}"


def _step_name(step: PredictedStep, position: int) -> str:
    if step.magnification is None:
        return f"step {position + 1}"
    return magnification_label(step.magnification).replace("x", "×")


def _ends(overlay: Overlay) -> tuple[str, str]:
    if overlay.scale == "rank":
        return "lowest here", "highest here"
    return f"{overlay.low:.3g}", f"{overlay.high:.3g}"
