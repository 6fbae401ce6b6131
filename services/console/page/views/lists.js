// A watched resource as one filtered table, with something that can be done to a row.
import { html, useMemo, useState } from "../lib.js";
import { keyOf, useWatch } from "../api.js";
import { matcher } from "../format.js";
import { Confirm, notice } from "../parts/dialog.js";
import { Chosen, ForMany, useSelection } from "../parts/many.js";
import { useQuery } from "../parts/route.js";
import { Loaded } from "../parts/state.js";
import { Table } from "../parts/table.js";

/**
 * `title`; `where`: the resource; `columns` as in Table; `texts(row)`: what the filter looks at;
 * `actions`: {title, text(row), run(row), done, may(row), many: {text(rows), done(number)}} for a button in each row
 * that may have it, and for the rows that are selected.
 */
export function List({ title, where, columns, texts, actions = [], empty, before = null, onOpen = null, sort = null }) {
  const watched = useWatch(where);
  const [filter, setFilter] = useQuery("name"),
    [asked, setAsked] = useState(/** @type {{ action: any, row: any } | null} */ (null));
  const rows = useMemo(() => {
    const matches = matcher(filter);
    return [...watched.items.values()].filter((row) => texts(row).some((it) => matches(it || "")));
  }, [watched.version, filter]);
  const selection = useSelection(rows, keyOf),
    [many, setMany] = useState(null);
  const acts = actions.some((action) => rows.some(action.may));
  const all = !acts
    ? columns
    : [
        ...columns,
        {
          key: "_",
          title: "",
          acts: true,
          spoken: actions.map((action) => action.title).join(", "),
          render: (row) =>
            actions.map(
              (action) =>
                action.may(row) &&
                html`<button type="button" class="small" key=${action.title}
                aria-label=${`${action.title} ${keyOf(row)}`}
                onClick=${() => setAsked({ action, row })}>${action.title}</button>`,
            ),
        },
      ];
  return html`<h1>${title}</h1><div class="tools"><label>Filter <input type="search" value=${filter}
    onInput=${(event) => setFilter(event.currentTarget.value)} /></label>${before}</div>
    ${
      acts &&
      html`<${Chosen} selection=${selection} onAsk=${setMany}
      actions=${actions.map((action) => ({ ...action, ...action.many }))} />`
    }
    <${Loaded} of=${watched}><${Table} label=${title} columns=${all} rows=${rows} keyOf=${keyOf} empty=${empty}
      onOpen=${onOpen} sort=${sort} selected=${selection.selected} onSelect=${acts ? selection.set : null} /><//>
    ${many && html`<${ForMany} ...${many} keyOf=${keyOf} onClose=${() => setMany(null)} />`}
    ${
      asked &&
      html`<${Confirm} title=${asked.action.title} text=${asked.action.text(asked.row)}
        onClose=${() => setAsked(null)} action=${() => asked.action.run(asked.row)} onDone=${() => {
          setAsked(null);
          notice(asked.action.done);
        }} />`
    }`;
}
