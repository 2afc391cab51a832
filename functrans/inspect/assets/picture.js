"use strict";
// picture(graph, closed) -> the SVG of a program, as text. Runs in a browser and in bare V8: layout by
// dagre (layered, Gansner et al. 1993), drawing by strings. `closed`: ids of boxes not opened.
const CHAR = 7.25, TALL = 34, FLAT = 22;

const escaped = (text) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" }[c]));

function width(node) {
  return Math.max(44, CHAR * Math.max(node.label.length + (node.inside && node.inside.length ? 2 : 0),
    0.86 * node.below.length) + 18);
}

// Boxes and arrows with opened boxes taken apart: an opened box is a frame with a box at its
// entrance and one at its exit, because dagre's arrows end at boxes, not at frames.
function flat(graph, closed, made, frame) {
  const into = new Map(), out = new Map();
  for (const node of graph.nodes) {
    const holds = node.inside && node.inside.length && !closed.has(node.id);
    if (!holds) {
      made.boxes.push({ ...node, key: "n" + node.id, frame });
      into.set(node.id, "n" + node.id);
      out.set(node.id, "n" + node.id);
      continue;
    }
    const outer = "f" + node.id;
    made.frames.push({ key: outer, frame, kind: node.kind });
    const head = "n" + node.id, exit = "x" + node.id;
    made.boxes.push({ ...node, key: head, frame: outer });
    made.boxes.push({ key: exit, id: node.id, kind: "exit", label: "end of " + node.label.split(" ")[0],
      below: "", about: node.about, frame: outer });
    node.inside.forEach((part, n) => {
      const inner = outer + "p" + n;
      made.frames.push({ key: inner, frame: outer, kind: "part", label: part.label });
      const ends = flat(part.graph, closed, made, inner);
      ends.inputs.forEach((key) => made.arrows.push({ from: head, to: key, label: "" }));
      ends.outputs.forEach((key) => made.arrows.push({ from: key, to: exit, label: "" }));
      if (!ends.inputs.length) made.arrows.push({ from: head, to: ends.outputs[0], label: "" });
    });
    into.set(node.id, head);
    out.set(node.id, exit);
  }
  for (const e of graph.edges) made.arrows.push({ from: out.get(e.from), to: into.get(e.to), label: e.label });
  const keys = (kind) => graph.nodes.filter((n) => n.kind === kind).map((n) => "n" + n.id);
  return { inputs: keys("input"), outputs: keys("output") };
}

function layout(made) {
  const g = new dagre.graphlib.Graph({ compound: true, multigraph: false });
  g.setGraph({ rankdir: "TB", nodesep: 22, ranksep: 30, edgesep: 12, marginx: 16, marginy: 16 });
  for (const f of made.frames) g.setNode(f.key, { label: f.label || "" });
  for (const b of made.boxes) g.setNode(b.key, { width: width(b), height: b.below ? TALL : FLAT });
  for (const x of [...made.frames, ...made.boxes]) if (x.frame) g.setParent(x.key, x.frame);
  for (const a of made.arrows) {
    g.setEdge(a.from, a.to, { width: a.label.length * 6.1 + 6, height: a.label ? 13 : 1, labelpos: "c" });
  }
  dagre.layout(g);
  return g;
}

// Straight pieces with rounded corners through dagre's points.
function path(points) {
  const p = points.map((q) => [q.x, q.y].map((v) => v.toFixed(1)));
  let d = `M${p[0]}`;
  for (let i = 1; i < points.length - 1; i++) {
    const mid = [(points[i].x + points[i + 1].x) / 2, (points[i].y + points[i + 1].y) / 2].map((v) => v.toFixed(1));
    d += ` Q${p[i]} ${i < points.length - 2 ? mid : p[i + 1]}`;
  }
  return points.length === 2 ? d + ` L${p[1]}` : d;
}

const STYLE = `
.paper{fill:#fff}.arrow{fill:none;stroke:#8793a3;stroke-width:1.2}.tip{fill:#8793a3}
.frame{fill:#5f6b7a;fill-opacity:.06;stroke:#b4bdc9}.part{stroke-dasharray:4 3;fill-opacity:.03}
text{font:12px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#1c2430;text-anchor:middle}
.small{font-size:10.5px;fill:#5f6b7a}.tag{text-anchor:start}.halo{stroke:#fff;stroke-width:5px;paint-order:stroke;stroke-linejoin:round}
.box rect{stroke-width:1.2}.forward rect{fill:#e3edfb;stroke:#3f7bd0}.backward rect{fill:#f6e3f3;stroke:#b0529c}
.input rect,.constant rect,.output rect{fill:#eef1f4;stroke:#8793a3}.exit rect{fill:none;stroke:#8793a3;stroke-dasharray:3 2}
.folds{cursor:pointer}
@media (prefers-color-scheme:dark){.paper{fill:#14181f}.arrow{stroke:#76839a}.tip{fill:#76839a}
text{fill:#e3e8ef}.small{fill:#9aa6b5}.halo{stroke:#14181f}.frame{fill:#9aa6b5;stroke:#465162}
.forward rect{fill:#1c3152;stroke:#6fa4f2}.backward rect{fill:#43233f;stroke:#dc86c9}
.input rect,.constant rect,.output rect{fill:#252c36;stroke:#76839a}.exit rect{stroke:#76839a}}`;

function legend(y) {
  const box = (x, kind, text) => `<g class="box ${kind}"><rect x="${x}" y="${y}" width="14" height="12" rx="3"/></g>` +
    `<text class="small tag" x="${x + 20}" y="${y + 10}">${text}</text>`;
  return box(16, "forward", "forward") + box(96, "backward", "backward") + box(184, "input", "inputs, results");
}

function picture(graph, closedIds) {
  const made = { boxes: [], frames: [], arrows: [] };
  flat(graph, new Set(closedIds), made, undefined);
  const g = layout(made);
  const size = g.graph(), wide = Math.max(size.width, 300), tall = size.height + 26;
  const out = [];
  for (const f of made.frames) {
    const n = g.node(f.key);
    const x = n.x - n.width / 2, y = n.y - n.height / 2;
    out.push(`<rect class="frame ${f.kind === "part" ? "part" : ""}" x="${x.toFixed(1)}" y="${y.toFixed(1)}" ` +
      `width="${n.width.toFixed(1)}" height="${n.height.toFixed(1)}" rx="8"/>`);
    if (f.label) out.push(`<text class="small tag" x="${(x + 8).toFixed(1)}" y="${(y + 13).toFixed(1)}">${escaped(f.label)}</text>`);
  }
  const labels = [];
  for (const a of made.arrows) {
    const e = g.edge(a.from, a.to);
    out.push(`<path class="arrow" marker-end="url(#tip)" d="${path(e.points)}"/>`);
    if (a.label) labels.push(`<text class="small halo" x="${e.x.toFixed(1)}" y="${(e.y + 3.5).toFixed(1)}">${escaped(a.label)}</text>`);
  }
  for (const b of made.boxes) {
    const n = g.node(b.key), x = n.x - n.width / 2, y = n.y - n.height / 2;
    const holds = b.inside && b.inside.length;
    const sign = holds ? (closedIds.includes(b.id) ? "▸ " : "▾ ") : "";
    const round = ["input", "constant", "output"].includes(b.kind) ? 11 : 5;
    out.push(`<g class="box ${b.kind}${holds ? " folds" : ""}" data-id="${b.id}"><title>${escaped(b.about)}</title>` +
      `<rect x="${x.toFixed(1)}" y="${y.toFixed(1)}" width="${n.width.toFixed(1)}" height="${n.height}" rx="${round}"/>` +
      `<text x="${n.x.toFixed(1)}" y="${(n.y + (b.below ? -2 : 4)).toFixed(1)}">${escaped(sign + b.label)}</text>` +
      (b.below ? `<text class="small" x="${n.x.toFixed(1)}" y="${(n.y + 12).toFixed(1)}">${escaped(b.below)}</text>` : "") + "</g>");
  }
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${Math.ceil(wide)} ${Math.ceil(tall)}" ` +
    `width="${Math.ceil(wide)}" height="${Math.ceil(tall)}"><style>${STYLE}</style>` +
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">' +
    '<path class="tip" d="M0 0L8 4L0 8z"/></marker></defs>' +
    `<rect class="paper" width="100%" height="100%"/>${out.join("")}${labels.join("")}${legend(size.height + 4)}</svg>`;
}
