"""Row 15, elements: the few building blocks of the pages; texts are always texts, never HTML."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement


def text(content: str, classes: str = "", tag: str = "span") -> TextElement:
    """A text in its own element."""
    return TextElement(tag=tag, text=content).classes(classes)


def group(classes: str = "", tag: str = "div") -> Element:
    """An element to put others in."""
    return Element(tag).classes(classes)


def button(
    content: str, on_click: Callable[[], Any], classes: str = "", *, says: str = "", keys: str = ""
) -> TextElement:
    """A button.

    Args:
        content: its text.
        on_click: called when it is pressed, by pointer or key.
        classes: of the style sheet.
        says: what it does, for those who do not see it, where the text does not say.
        keys: its shortcut, shown as a hint.
    """
    made = TextElement(tag="button", text=content).classes(f"zm-button {classes}")
    made._props["type"] = "button"
    if says or keys:
        hint = says or content
        made._props["title"] = f"{hint} ({keys})" if keys else hint
        made._props["aria-label"] = hint
    if keys:
        made._props["aria-keyshortcuts"] = keys
    made.on("click", on_click, args=[])
    return made


def link(content: str, address: str, classes: str = "") -> TextElement:
    """A link inside this application."""
    made = TextElement(tag="a", text=content).classes(classes)
    made._props["href"] = address
    return made


def picture(address: str, says: str, classes: str = "") -> Element:
    """A picture with a text for those who do not see it."""
    made = Element("img").classes(classes)
    made._props.update({"src": address, "alt": says, "loading": "lazy"})
    return made


def set_prop(element: Element, name: str, value: Any) -> None:
    """Change one property and tell the page."""
    if element._props.get(name) != value:
        element._props[name] = value
        element.update()
