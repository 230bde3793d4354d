"""Row 15, stage: a slide's place in the tile world comes in; the deep-zoom map goes out.

A thin layer over NiceGUI's Leaflet in the slide's own terms: level-0 boxes, microns, magnification.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from nicegui import ui
from nicegui.events import GenericEventArguments

from zoommil.units import magnification_label, magnification_of
from zoommil.viewer.elements import button
from zoommil.viewer.overlay import Overlay
from zoommil.viewer.world import TILE_PX, LatLngBox, TileWorld

PATH_COLOURS = ("#56b4e9", "#f0e442", "#ff9f43", "#e8a0c8")
PATH_DASHES = (None, "7 4", "2 4", "9 3 2 3")
CURRENT = "#ffffff"

_CASING = "#0b0e12"
_BEYOND = 2  # zooms past the scan's own resolution
_FURTHEST = 8
_BAR_PX = 140
_UNREADABLE = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' width='256' height='256'%3E"
    "%3Crect width='256' height='256' fill='%23241a1c'/%3E%3Cpath d='M0 256 256 0' "
    "stroke='%23804a4f'/%3E%3Ctext x='128' y='132' fill='%23e0a5aa' font-family='sans-serif' "
    "font-size='14' text-anchor='middle'%3Ecannot be read%3C/text%3E%3C/svg%3E"
)

Box = Float[np.ndarray, " 4"]


@dataclass(frozen=True, eq=False)
class PathBox:
    """A patch that was zoomed into.

    Attributes:
        box: level-0 (x, y, width, height).
        position: of its step among the prediction's steps.
        patch: its place in that step.
    """

    box: Box
    position: int
    patch: int


class Stage:
    """The map on which a slide lies."""

    def __init__(
        self, world: TileWorld, key: str | None, on_click: Callable[[float, float], None]
    ) -> None:
        """Made in the slot it is to appear in.

        Args:
            world: where the slide lies.
            key: whose tiles to show; None: there is no file, only what lies over it.
            on_click: called with the level-0 (x, y) of a click.
        """
        self.world = world
        self._on_click = on_click
        self._overlay: Any = None
        self._boxes: list[Any] = []
        self._current: list[Any] = []
        self._opacity = 1.0
        (north, west), (south, east) = world.whole()
        middle = ((north + south) / 2, (west + east) / 2)
        options = {
            "zoomSnap": 0.25,
            "wheelPxPerZoomLevel": 110,
            "maxZoom": world.max_zoom + _BEYOND,
            "minZoom": max(0, world.max_zoom - _FURTHEST),
            "attributionControl": False,
            "zoomControl": False,
            "maxBoundsViscosity": 0.6,
        }
        self.map = ui.leaflet(middle, world.max_zoom, options=options).classes("zm-map")
        self.map.props('role="application" aria-label="The slide. Arrow keys pan, + and - zoom."')
        self.map.clear_layers()  # nothing is asked of the internet
        if key is not None:
            self.map.image_overlay(  # seen until the tiles come, and between them
                url=f"/thumbnails/{key}.jpg",
                bounds=_lists(world.whole()),
                options={"pane": "tilePane", "zIndex": 0, "className": "zm-under"},
            )
            self.map.tile_layer(
                url_template=f"/tiles/{key}/{{z}}/{{x}}/{{y}}.jpg", options=self._tiles()
            )
        self.map.on("init", self.fit)
        self.map.on("map-click", self._clicked)
        self.map.on("map-zoomend", self._zoomed, args=["zoom"])
        with ui.element("div").classes("zm-controls").props('role=group aria-label="View"'):
            button("+", lambda: self.map.run_map_method("zoomIn"), says="Closer", keys="+")
            button("−", lambda: self.map.run_map_method("zoomOut"), says="Further away", keys="-")
            button("⤢", self.fit, says="Whole slide", keys="f")
        with ui.element("div").classes("zm-scale"):
            self._magnification = ui.label("").classes("zm-scale-mag")
            self._length = ui.label("").classes("zm-scale-text")
            self._bar = ui.element("div").classes("zm-scale-bar")

    def fit(self) -> None:
        """Show the whole slide."""
        self.map.run_map_method("fitBounds", self.world.whole(), {"padding": [24, 24]})

    def fly_to(self, box: Box) -> None:
        """Move to a level-0 box, without a flight for those who want none."""
        self._method("flyToBounds", self.world.box_of(_padded(box, 0.35)))

    def show_overlay(self, overlay: Overlay | None) -> None:
        """Lay this over the slide, in place of what lay there."""
        if self._overlay is not None:
            self.map.remove_layer(self._overlay)
            self._overlay = None
        if overlay is not None:
            options = {"opacity": self._opacity, "className": "zm-overlay"}
            bounds = _lists(self.world.box_of(overlay.box))
            self._overlay = self.map.image_overlay(
                url=overlay.data_url(), bounds=bounds, options=options
            )

    def set_opacity(self, opacity: float) -> None:
        """How much of the overlay is seen, 0 to 1."""
        self._opacity = opacity
        if self._overlay is not None:
            self._overlay.options["opacity"] = opacity
            self._overlay.run_method("setOpacity", opacity)

    def show_boxes(self, boxes: Sequence[PathBox]) -> None:
        """Outline the patches that were zoomed into, a step's in one colour and kind of line."""
        for layer in self._boxes:
            self.map.remove_layer(layer)
        self._boxes = []
        for one in sorted(boxes, key=lambda one: one.position):
            colour = PATH_COLOURS[one.position % len(PATH_COLOURS)]
            dashes = PATH_DASHES[one.position % len(PATH_DASHES)]
            self._boxes += self._outline(one.box, colour, dashes, weight=2)

    def show_current(self, box: Box | None) -> None:
        """Outline the one patch that is being looked at."""
        for layer in self._current:
            self.map.remove_layer(layer)
        self._current = [] if box is None else self._outline(box, CURRENT, None, weight=4)

    def _outline(self, box: Box, colour: str, dashes: str | None, weight: int) -> list[Any]:
        """A line with a dark one under it, so that it is seen on tissue and on glass."""
        under = {"color": _CASING, "weight": weight + 2.5, "opacity": 0.6, "dashArray": None}
        over = {"color": colour, "weight": weight, "opacity": 1, "dashArray": dashes}
        bounds = _lists(self.world.box_of(box))
        return [
            self.map.generic_layer(
                name="rectangle", args=[bounds, {**line, "fill": True, "fillOpacity": 0}]
            )
            for line in (under, over)
        ]

    def _tiles(self) -> dict[str, Any]:
        return {
            "tileSize": TILE_PX,
            "maxNativeZoom": self.world.max_zoom,
            "minNativeZoom": 0,
            "maxZoom": self.world.max_zoom + _BEYOND,
            "minZoom": 0,
            "noWrap": True,
            "bounds": _lists(self.world.whole()),
            "keepBuffer": 3,
            "errorTileUrl": _UNREADABLE,
            "className": "zm-tile",
        }

    def _method(self, name: str, bounds: LatLngBox) -> None:
        still = "matchMedia('(prefers-reduced-motion: reduce)').matches"
        options = f"{{duration: 0.9, animate: !{still}, padding: [32, 32]}}"
        self.map.run_map_method(f":{name}", json.dumps(bounds), options)

    def _clicked(self, event: GenericEventArguments) -> None:
        try:
            place = event.args["latlng"]
            point = self.world.to_slide(float(place["lat"]), float(place["lng"]))
        except (KeyError, TypeError, ValueError, OverflowError):
            return
        if all(map(math.isfinite, point)):
            self._on_click(*point)

    def _zoomed(self, event: GenericEventArguments) -> None:
        mpp = self.world.frame.mpp
        zoom = event.args.get("zoom") if isinstance(event.args, dict) else None
        if mpp is None or not isinstance(zoom, (int, float)) or not 0 <= zoom <= 40:
            return
        mpp_shown = mpp * self.world.downsample(zoom)
        microns = nice_length(mpp_shown * _BAR_PX)
        name = magnification_label(float(f"{magnification_of(mpp_shown):.2g}"))
        self._magnification.set_text(name.replace("x", "×"))
        self._length.set_text(length_text(microns))
        self._bar.style(f"width: {microns / mpp_shown:.1f}px")


def nice_length(most: float) -> float:
    """The largest of 1, 2 or 5 times a power of ten that is no more than this."""
    power = 10.0 ** math.floor(math.log10(most))
    return max(power * factor for factor in (1, 2, 5) if power * factor <= most * (1 + 1e-9))


def length_text(microns: float) -> str:
    """A length as people write it."""
    return f"{microns / 1000:g} mm" if microns >= 1000 else f"{microns:g} µm"


def _padded(box: Box, share: float) -> Box:
    margin = box[2:] * share
    return np.concatenate([box[:2] - margin, box[2:] + 2 * margin])


def _lists(box: LatLngBox) -> list[list[float]]:
    return [list(corner) for corner in box]
