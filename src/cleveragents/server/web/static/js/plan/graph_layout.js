// The layout of an actor's graph: layers from left to right, each node in the layer of its longest path.
//
// Back edges are found first (depth first, from the start) and do not count for the layers. Within a layer nodes are
// sorted by the position of their predecessors; two passes are enough for hand-written graphs.

const WIDTH = 128;
const HEIGHT = 44;
const GAP_X = 44;
const GAP_Y = 26;
const MARGIN = 14;

// {nodes: [{...node, x, y, width, height}], edges: [{...edge, path, back}], width, height}
export function laidOut(nodes, edges) {
  const names = nodes.map((node) => node.name);
  const known = new Set(names);
  const kept = edges.filter((edge) => known.has(edge.from) && known.has(edge.to));
  const back = backEdges(names, kept);
  const forward = kept.filter((edge) => !back.has(edge));
  const layerOf = layers(names, forward);
  const rows = arranged(names, forward, layerOf);
  const tallest = Math.max(1, ...rows.map((row) => row.length));
  const at = new Map();
  rows.forEach((row, layer) => {
    const offset = ((tallest - row.length) * (HEIGHT + GAP_Y)) / 2;
    row.forEach((name, place) => {
      at.set(name, { x: MARGIN + layer * (WIDTH + GAP_X), y: MARGIN + offset + place * (HEIGHT + GAP_Y) });
    });
  });
  const bottom = MARGIN + tallest * (HEIGHT + GAP_Y);
  const loops = back.size ? 24 + 10 * back.size : 0;
  return {
    nodes: nodes.map((node) => ({ ...node, ...at.get(node.name), width: WIDTH, height: HEIGHT })),
    edges: kept.map((edge, place) => ({
      ...edge,
      back: back.has(edge),
      path: pathOf(at.get(edge.from), at.get(edge.to), back.has(edge), bottom + place * 4),
    })),
    width: 2 * MARGIN + rows.length * WIDTH + Math.max(0, rows.length - 1) * GAP_X,
    height: bottom + loops,
  };
}

function backEdges(names, edges) {
  const back = new Set();
  const state = new Map();
  const visit = (name) => {
    state.set(name, "open");
    for (const edge of edges.filter((one) => one.from === name)) {
      if (state.get(edge.to) === "open") back.add(edge);
      else if (!state.has(edge.to)) visit(edge.to);
    }
    state.set(name, "done");
  };
  for (const name of names) if (!state.has(name)) visit(name);
  return back;
}

function layers(names, forward) {
  const layerOf = new Map(names.map((name) => [name, 0]));
  for (let round = 0; round < names.length; round += 1) {
    let moved = false;
    for (const edge of forward) {
      if (layerOf.get(edge.to) <= layerOf.get(edge.from)) {
        layerOf.set(edge.to, layerOf.get(edge.from) + 1);
        moved = true;
      }
    }
    if (!moved) break;
  }
  return layerOf;
}

function arranged(names, forward, layerOf) {
  const rows = [];
  for (const name of names) (rows[layerOf.get(name)] ??= []).push(name);
  for (let layer = 1; layer < rows.length; layer += 1) {
    const before = new Map(rows[layer - 1].map((name, place) => [name, place]));
    const middle = (name) => {
      const places = forward.filter((edge) => edge.to === name && before.has(edge.from)).map((e) => before.get(e.from));
      return places.length ? places.reduce((sum, place) => sum + place, 0) / places.length : 0;
    };
    rows[layer].sort((a, b) => middle(a) - middle(b));
  }
  return rows;
}

function pathOf(from, to, isBack, below) {
  const y1 = from.y + HEIGHT / 2;
  const y2 = to.y + HEIGHT / 2;
  if (isBack) {
    const [x1, x2] = [from.x + WIDTH / 2, to.x + WIDTH / 2];
    if (from === to) {
      return `M ${x1 + 30} ${from.y + HEIGHT} C ${x1 + 40} ${below + 14} ${x1 - 40} ${below + 14} ${x1 - 30} ${from.y + HEIGHT}`;
    }
    return `M ${x1} ${from.y + HEIGHT} C ${x1} ${below + 18} ${x2} ${below + 18} ${x2} ${to.y + HEIGHT + 2}`;
  }
  const [x1, x2] = [from.x + WIDTH, to.x - 2];
  const bend = Math.max(20, (x2 - x1) / 2);
  return `M ${x1} ${y1} C ${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}
