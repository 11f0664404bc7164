// The actors of a plan as graphs with the running nodes highlighted, and as lists for screen readers.

import { html, useMemo } from "../ui.js";
import { Badge, Empty, Loaded } from "../components.js";
import { runningNodes } from "./event_text.js";
import { laidOut } from "./graph_layout.js";
import { useRead } from "./load.js";
import { isRunning } from "./plan_text.js";

export function Graph({ plan, events, rev, lines }) {
  const load = useRead(`/plans/${plan.id}/graph`, rev);
  const lit = useMemo(() => {
    if (!isRunning(plan)) return new Set();
    return new Set([...runningNodes(events), lines.node].filter(Boolean));
  }, [events, plan.state, lines.node]);
  return html`<${Loaded} load=${load} what="Loading actors">
    ${(found) => {
      if (!found.actors.length) {
        return html`<${Empty} title="No actors" icon="branch">This plan runs fixed steps without a model.<//>`;
      }
      return found.actors.map((graph) => html`<${One} key=${graph.role} graph=${graph} lit=${lit} />`);
    }}
  <//>`;
}

const START = "start";
const END = "end";

// The graph with its start and end as nodes.
function drawn(graph) {
  const edges = graph.edges.map((edge) => ({ ...edge, to: isEnd(edge.to) ? END : edge.to }));
  const entry = graph.entry ? [{ from: START, to: graph.entry, when: null }] : [];
  const ends = edges.some((edge) => edge.to === END) ? [{ name: END, type: END }] : [];
  const starts = entry.length ? [{ name: START, type: START }] : [];
  const nodes = graph.nodes.filter((node) => ![START, END].includes(node.name));
  return { nodes: [...starts, ...nodes, ...ends], edges: [...entry, ...edges] };
}

const isEnd = (name) => name === END || name === "__end__";

function One({ graph, lit }) {
  const isLit = (node) => lit.has(`${graph.actor}:${node.name}`) || (graph.running || []).includes(node.name);
  const { nodes, edges, width, height } = useMemo(() => {
    const whole = drawn(graph);
    return laidOut(whole.nodes, whole.edges);
  }, [JSON.stringify(graph.nodes), JSON.stringify(graph.edges)]);
  const running = nodes.filter(isLit);
  return html`<section class="p-section p-graph" aria-label=${`Actor ${graph.actor}`}>
    <div class="p-section-head">
      <h2>${graph.actor}</h2>
      ${graph.role && html`<span class="p-muted">${graph.role}</span>`}
      <span role="status">
        ${running.length > 0 && html`<${Badge} tone="run">${running.map((node) => node.name).join(", ")} running<//>`}
      </span>
    </div>
    ${graph.problem && html`<p class="p-warn">${graph.problem}</p>`}
    <div class="p-graph-frame" tabindex="0" role="group" aria-label="Graph">
      <svg width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} aria-hidden="true">
        <defs>
          <marker id="p-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
            <path d="M0 0.5 8 4 0 7.5z" class="p-arrow" />
          </marker>
        </defs>
        ${edges.map((edge, place) => html`<${Edge} key=${place} edge=${edge} />`)}
        ${nodes.map((node) => html`<${Node} key=${node.name} node=${node} lit=${isLit(node)} />`)}
      </svg>
    </div>
    <ul class="unseen">
      ${nodes.map(
        (node) => html`<li key=${node.name}>
          ${node.name}${node.type ? ` (${node.type})` : ""}${isLit(node) ? ", running" : ""}: leads to
          ${" "}${led(edges, node)}
        </li>`,
      )}
    </ul>
  </section>`;
}

// The successors of a node as text.
function led(edges, node) {
  const ways = edges.filter((edge) => edge.from === node.name);
  return ways.map((edge) => (edge.when ? `${edge.to} if ${edge.when}` : edge.to)).join(", ") || "nothing";
}

function Edge({ edge }) {
  return html`<path class=${edge.back ? "p-edge p-edge-back" : "p-edge"} d=${edge.path} marker-end="url(#p-arrow)">
    <title>${edge.when || ""}</title>
  </path>`;
}

function Node({ node, lit }) {
  const type = node.type || node.kind || "";
  const ends = ["start", "end"].includes(node.name) || ["start", "end"].includes(type);
  return html`<g class=${`p-node ${lit ? "p-node-lit" : ""} ${ends ? "p-node-end" : ""}`} transform=${`translate(${node.x} ${node.y})`}>
    <rect width=${node.width} height=${node.height} rx=${ends ? node.height / 2 : 8} />
    <text x=${node.width / 2} y=${type && !ends ? 19 : 27} text-anchor="middle">${cut(node.name)}</text>
    ${type && !ends && html`<text class="p-node-type" x=${node.width / 2} y="34" text-anchor="middle">${type}</text>`}
  </g>`;
}

const cut = (name) => (name.length > 16 ? `${name.slice(0, 15)}…` : name);
