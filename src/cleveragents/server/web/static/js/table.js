// A table that becomes a list of cards on narrow screens.

import { html } from "./ui.js";

/** `columns`: {name, label, cell(row), number?, wide?}. `caption` is for screen readers only. */
export function Table({ caption, columns, rows, keyOf = (row) => row.id, rowClass = () => "" }) {
  return html`<div class="table-frame" role="region" aria-label=${caption} tabindex="0">
    <table class="table">
      <caption class="unseen">${caption}</caption>
      <thead>
        <tr>${columns.map((one) => html`<th key=${one.name} scope="col" class=${classOf(one)}>${one.label || html`<span class="unseen">Action</span>`}</th>`)}</tr>
      </thead>
      <tbody>
        ${rows.map(
          (row) => html`<tr key=${keyOf(row)} class=${rowClass(row)}>
            ${columns.map(
              (one) => html`<td key=${one.name} class=${classOf(one)} data-label=${one.label}>${one.cell(row)}</td>`,
            )}
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

function classOf(column) {
  return [column.number && "number", column.wide && "wide"].filter(Boolean).join(" ");
}
