// A table that draws only the rows in sight, so that 10,000 rows scroll as 10 do.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../lib.js";
import { count } from "../format.js";
import { useQuery } from "./route.js";

// Made once: localeCompare with options makes one for each call.
const collator = new Intl.Collator("en", { numeric: true });
const ROW = 38;
const BEYOND = 8; // rows drawn above and below the window

/** Column of a number: aligned right, sorted by `of(row)`, which `shown` makes a text of. */
export const numeric = (key, title, of, shown, more = {}) => ({
  key,
  title,
  align: "right",
  value: of,
  render: (row) => shown(of(row)),
  ...more,
});

/**
 * `columns`: {key, title, render(row), value(row) to sort by, align: "right", extra: hidden on small screens; grow:
 * it gets the room that is left, shrink: it gives way, so both have their text as a tooltip; stays: in sight at
 * the left while the others are scrolled sideways, acts: at the right}.
 * `rows`: objects; `keyOf(row)`; `onOpen(row)` for a click and Enter; `label`: name of the table for screen readers.
 * `selected`: Set of keys, `onSelect(set)`: rows can be selected. The order is in the address of the page, as
 * `sort=-KEY`.
 */
export function Table({
  columns,
  rows,
  keyOf,
  onOpen,
  label,
  empty = "Nothing here.",
  sort: first = null,
  selected = new Set(),
  onSelect = null,
}) {
  const [order, setOrder] = useQuery("sort", first ? (first.down ? "-" : "") + first.key : columns[0].key);
  const sort = useMemo(() => ({ key: order.replace(/^-/, ""), down: order.startsWith("-") }), [order]);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const [active, setActive] = useState(0);
  const box = useRef(null);
  const focusing = useRef(false);

  const sorted = useMemo(() => {
    const column = columns.find((it) => it.key === sort.key) || columns[0];
    const value = column.value || ((row) => row[column.key]);
    const direction = sort.down ? -1 : 1;
    return [...rows].sort((one, other) => {
      const left = value(one),
        right = value(other);
      // empty cells come last in both directions
      const order = isEmpty(left) || isEmpty(right) ? isEmpty(left) - isEmpty(right) : direction * compare(left, right);
      return order || compare(keyOf(one), keyOf(other));
    });
  }, [rows, sort]);

  useEffect(() => {
    const measure = () => setHeight(box.current ? box.current.clientHeight : 600);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);

  useLayoutEffect(() => {
    // before the next key is handled
    if (!focusing.current) return;
    focusing.current = false;
    const row = box.current.querySelector(`tr[data-index="${active}"]`);
    if (row) row.focus({ preventScroll: true });
  });

  const most = Math.max(0, sorted.length * ROW - height); // a filter may have left fewer rows than were scrolled past
  const from = Math.max(0, Math.floor(Math.min(top, most) / ROW) - BEYOND);
  const to = Math.min(sorted.length, Math.ceil((top + height) / ROW) + BEYOND);

  const move = (index) => {
    const next = Math.max(0, Math.min(sorted.length - 1, index));
    focusing.current = true;
    setActive(next);
    const view = box.current;
    if (next * ROW < view.scrollTop) view.scrollTop = next * ROW;
    else if ((next + 2) * ROW > view.scrollTop + view.clientHeight)
      view.scrollTop = (next + 2) * ROW - view.clientHeight;
  };
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -1e9, End: 1e9 };
  const onKey = (event, row, index) => {
    if (event.target.closest("input, button, a") && event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    if (event.key in steps) {
      event.preventDefault();
      move(index + steps[event.key]);
    } else if (event.key === "Enter" && onOpen) {
      event.preventDefault();
      onOpen(row);
    } else if (event.key === " " && onSelect) {
      event.preventDefault();
      toggle(keyOf(row));
    }
  };
  const toggle = (key) => {
    const next = new Set(selected);
    if (!next.delete(key)) next.add(key);
    onSelect?.(next);
  };
  const every = sorted.length > 0 && sorted.every((row) => selected.has(keyOf(row)));
  const head = (column) => {
    const on = sort.key === column.key;
    return html`<th key=${column.key} scope="col" class=${classes(column)}
      aria-sort=${on ? (sort.down ? "descending" : "ascending") : undefined}>
      ${
        column.title
          ? html`<button type="button" class="sort"
            onClick=${() => setOrder(((on ? !sort.down : column.down) ? "-" : "") + column.key)}>
            ${column.title}<span aria-hidden="true">${on ? (sort.down ? " ↓" : " ↑") : ""}</span></button>`
          : html`<span class="hidden">${column.spoken || ""}</span>`
      }</th>`;
  };
  return html`
    <div class="table-box" ref=${box} tabindex="0" role="region" aria-label=${label}
         onScroll=${(event) => setTop(event.currentTarget.scrollTop)}>
      <table aria-rowcount=${sorted.length + 1}>
        <caption class="hidden">${label}</caption>
        <thead><tr aria-rowindex="1">${
          onSelect &&
          html`<th class="narrow"><input type="checkbox" aria-label="select all rows" checked=${every}
          onChange=${() => onSelect(new Set(every ? [] : sorted.map(keyOf)))} /></th>`
        }
        ${columns.map(head)}</tr></thead>
        <tbody>
          ${
            from > 0 &&
            html`<tr key="above" aria-hidden="true" class="spacer"><td colspan=${columns.length + 1}
            style=${{ height: `${from * ROW}px` }}></td></tr>`
          }
          ${sorted.slice(from, to).map((row, offset) => {
            const index = from + offset,
              key = keyOf(row);
            return html`<tr key=${key} data-index=${index} aria-rowindex=${index + 2}
              tabindex=${index === active ? 0 : -1}
                class=${onOpen ? "opens" : ""} onFocus=${() => active !== index && setActive(index)}
                onKeyDown=${(event) => onKey(event, row, index)}
                onClick=${(event) => onOpen && !event.target.closest("button, a, input") && onOpen(row)}>
              ${
                onSelect &&
                html`<td class="narrow"><input type="checkbox" checked=${selected.has(key)}
                aria-label=${`select ${key}`} onChange=${() => toggle(key)} /></td>`
              }
              ${columns.map(
                (column) => html`<td key=${column.key} class=${classes(column)} title=${tooltip(column, row)}>
              ${column.render ? column.render(row) : (row[column.key] ?? "–")}</td>`,
              )}
            </tr>`;
          })}
          ${
            to < sorted.length &&
            html`<tr key="below" aria-hidden="true" class="spacer"><td
            colspan=${columns.length + 1} style=${{ height: `${(sorted.length - to) * ROW}px` }}></td></tr>`
          }
        </tbody>
      </table>
      ${sorted.length === 0 && html`<p class="empty">${empty}</p>`}
    </div>
    <p class="foot" role="status">${count(sorted.length)} ${sorted.length === 1 ? "row" : "rows"}</p>`;
}

const classes = (column) =>
  [column.align === "right" && "right", ...["extra", "grow", "shrink", "stays", "acts"].filter((it) => column[it])]
    .filter(Boolean)
    .join(" ");

/** The text of a cell that may be cut. */
const tooltip = (column, row) =>
  column.grow || column.shrink ? String((column.value ? column.value(row) : row[column.key]) ?? "") : undefined;

/** 1 for a value that leaves its cell empty, else 0. */
const isEmpty = (value) => Number(value === null || value === undefined || value === "");

function compare(one, other) {
  if (typeof one === "string") return collator.compare(one, other);
  return one < other ? -1 : one > other ? 1 : 0;
}
