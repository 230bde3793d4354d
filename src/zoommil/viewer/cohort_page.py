"""Row 15, cohort page: the cohort comes in; a table to sort, filter and open from goes out."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from nicegui import ui
from nicegui.events import GenericEventArguments

from zoommil.viewer.cohort import COLUMNS, SHOWS, Order, figures_of, table_row
from zoommil.viewer.elements import button, group, set_prop, text
from zoommil.viewer.viewer import Viewer

PAGE_ROWS = 100

_LABELS = {
    "slide": "Slide",
    "case": "Case",
    "predicted": "Predicted",
    "probability": "Probability",
    "label": "Label",
    "patches": "Patches read",
    "saving": "Fewer operations",
    "seconds": "Time",
}
_HEADER = r"""
<q-tr :props="props">
  <q-th auto-width></q-th>
  <q-th v-for="col in props.cols" :key="col.name" :props="props"
        :aria-sort="col.order || 'none'">
    <button type="button" class="zm-sort" @click="$parent.$emit('order', col.name)">
      {{ col.label }}<span class="zm-arrow" aria-hidden="true">{{ col.arrow }}</span>
    </button>
  </q-th>
</q-tr>
"""
_BODY = r"""
<q-tr :props="props" class="zm-table-row" @click="$parent.$emit('open', props.row.key)">
  <q-td auto-width class="zm-thumb-cell">
    <img v-if="props.row.has_file" class="zm-thumb" loading="lazy" alt=""
         :src="'/thumbnails/' + props.row.key + '.jpg'"
         @error="$event.target.classList.add('zm-no-thumb');
                 $event.target.removeAttribute('src')"/>
    <span v-else class="zm-thumb zm-no-thumb" title="no file in the slides folder"></span>
  </q-td>
  <q-td><a class="zm-open" :href="props.row.href" @click.stop>{{ props.row.slide }}</a></q-td>
  <q-td class="zm-cell-case zm-muted">{{ props.row.case }}</q-td>
  <q-td class="zm-cell-predicted">
    <span v-if="props.row.predicted">{{ props.row.predicted }}</span>
    <span v-else class="zm-muted">not yet</span>
  </q-td>
  <q-td class="zm-cell-probability">
    <span v-if="props.row.probability !== null" class="zm-cell-bar">
      <span class="zm-track"><span class="zm-fill"
        :style="{width: (100 * props.row.probability) + '%'}"></span></span>
      <span class="zm-number">{{ props.row.probability.toFixed(2) }}</span>
    </span>
  </q-td>
  <q-td class="zm-cell-label">
    <span :class="'zm-state zm-' + props.row.state.replace(' ', '-')">
      <span v-if="props.row.state === 'agrees'" class="zm-mark" title="agrees">✓</span>
      <span v-if="props.row.state === 'differs'" class="zm-mark" title="differs">≠</span>
      {{ props.row.label }}
    </span>
  </q-td>
  <q-td class="zm-cell-patches zm-number">
    {{ props.row.patches }} <span class="zm-muted">{{ props.row.of }}</span>
  </q-td>
  <q-td class="zm-cell-saving zm-number">{{ props.row.saving }}</q-td>
  <q-td class="zm-cell-seconds zm-number">{{ props.row.seconds }}</q-td>
</q-tr>
"""
_FOCUS = """
(() => {{
  const links = [...document.querySelectorAll('.zm-open')];
  const now = links.indexOf(document.activeElement);
  const next = links[Math.min(links.length - 1, Math.max(0, now + ({places})))];
  if (next) next.focus();
}})()
"""
_TO_ROWS = "(event) => document.querySelector('.zm-open')?.focus()"
_PLACES = {"j": 1, "k": -1, "ArrowDown": 1, "ArrowUp": -1, "Home": -(10**6), "End": 10**6}


class CohortPage:
    """The page of the whole cohort."""

    def __init__(self, viewer: Viewer, order: Order) -> None:
        """Builds the page. Args: viewer: what is shared; order: to begin with."""
        self.viewer = viewer
        self.order = order
        self._first = 0
        ui.page_title("zoommil")
        ui.keyboard(self._on_key, ignore=["input", "textarea"])
        with group("zm-cohort", "main"):
            self._make_head()
            self._make_filters()
            self._make_table()
        self._show()

    def _make_head(self) -> None:
        with group("zm-cohort-head", "header"):
            with group():
                with group("zm-brand"):
                    group("zm-logo").props("aria-hidden=true")
                    text("zoommil")
                text("Where it looked", "zm-cohort-title", "h1")
            group("zm-space")
            with group("zm-figures").props('aria-label="The cohort in figures"'):
                for value, name in figures_of(self.viewer.ordered(Order())):
                    with group("zm-figure"):
                        text(value, "zm-figure-value")
                        text(name, "zm-figure-name")

    def _make_filters(self) -> None:
        classes = {"": "Any prediction", **{name: name for name in self.viewer.library.classes}}
        with group("zm-filters").props('role=search aria-label="Filter"'):
            search = ui.input(placeholder="Slide, case or label", value=self.order.text)
            search.props('dense outlined clearable debounce=200 aria-label="Search"')
            search.classes("zm-search")
            search.on("keydown.enter", js_handler=_TO_ROWS)
            search.on("keydown.down", js_handler=_TO_ROWS)
            search.on_value_change(lambda event: self._set(text=str(event.value or "")[:100]))
            shows = ui.select(SHOWS, value=self.order.show)
            shows.props('dense outlined options-dense aria-label="Which slides"')
            shows.on_value_change(lambda event: self._set(show=event.value))
            names = ui.select(classes, value=self.order.predicted)
            names.props('dense outlined options-dense aria-label="Predicted class"')
            names.on_value_change(lambda event: self._set(predicted=event.value))
            group("zm-space")
            self._count = text("", "zm-muted").props("role=status")
            self._before = button("‹", lambda: self._turn(-1), "zm-icon", says="Rows before")
            self._after = button("›", lambda: self._turn(1), "zm-icon", says="Rows after")
            button("Look again", self._refresh, "zm-quiet", says="Look at the slides folder again")

    def _make_table(self) -> None:
        self._table = ui.table(rows=[], columns=self._columns(), row_key="key", pagination=0)
        self._table.classes("zm-table").props('flat hide-pagination aria-label="Cohort"')
        self._table.add_slot("header", _HEADER)
        self._table.add_slot("body", _BODY)
        self._table.add_slot("no-data", "<span class='zm-muted'>No slide fits the filter.</span>")
        self._table.on("order", self._sort)
        self._table.on("open", self._open)

    def _columns(self) -> list[dict[str, Any]]:
        found = []
        for name in COLUMNS:
            is_sorted = name == self.order.sort
            said = "descending" if self.order.is_down else "ascending"
            found.append(
                {
                    "name": name,
                    "label": _LABELS[name],
                    "field": name,
                    "align": "left",
                    "order": said if is_sorted else "none",
                    "arrow": ("▾" if self.order.is_down else "▴") if is_sorted else "",
                }
            )
        return found

    def _show(self) -> None:
        found = self.viewer.ordered(self.order)
        self._first = min(self._first, max(0, len(found) - 1)) // PAGE_ROWS * PAGE_ROWS
        query = self.order.query()
        some = found[self._first : self._first + PAGE_ROWS]
        self._table.columns = self._columns()
        self._table.rows = [table_row(entry, query) for entry in some]
        last = self._first + len(some)
        shown = f"{self._first + 1}–{last} of {len(found):,}" if len(found) > PAGE_ROWS else ""
        self._count.set_text(shown or f"{len(found):,} slides")
        for made, can in ((self._before, self._first > 0), (self._after, last < len(found))):
            set_prop(made, "disabled", not can)
            made.set_visibility(bool(shown))

    def _set(self, **changes: Any) -> None:
        values = {
            "show": self.order.show,
            "predicted": self.order.predicted,
            "text": self.order.text,
        }
        values |= {name: str(value or "") for name, value in changes.items()}
        checked = Order.of(values, self.viewer.library.classes)
        self._put(replace(checked, sort=self.order.sort, is_down=self.order.is_down))

    def _sort(self, event: GenericEventArguments) -> None:
        """Up, then down, then as they came."""
        name = event.args
        if name not in COLUMNS:
            return
        if name != self.order.sort:
            self._put(replace(self.order, sort=name, is_down=False))
        elif not self.order.is_down:
            self._put(replace(self.order, is_down=True))
        else:
            self._put(replace(self.order, sort="", is_down=False))

    def _put(self, order: Order) -> None:
        self.order = order
        self._first = 0
        ui.navigate.history.replace(f"/{order.query()}")
        self._show()

    def _turn(self, pages: int) -> None:
        self._first = max(0, self._first + pages * PAGE_ROWS)
        self._show()

    def _open(self, event: GenericEventArguments) -> None:
        entry = self.viewer.library.entry(str(event.args))
        if entry is not None:
            ui.navigate.to(f"/slide/{entry.key}{self.order.query()}")

    async def _refresh(self) -> None:
        await asyncio.to_thread(self.viewer.library.refresh)
        self._show()

    def _on_key(self, event: Any) -> None:
        if not event.action.keydown or event.modifiers.ctrl or event.modifiers.meta:
            return
        places = _PLACES.get(event.key.name)
        if places is not None:
            ui.run_javascript(_FOCUS.format(places=places))
        elif event.key.name == "/":
            ui.run_javascript("document.querySelector('.zm-search input').focus()")
