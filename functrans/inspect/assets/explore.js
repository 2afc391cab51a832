"use strict";
// Columns of rows of which only those in sight are in the document. A row is an index into the
// arrays of its stage; `seen` lists the rows that are not folded away.
const data = JSON.parse(document.getElementById("data").textContent);
const ROW = 18, MORE = 12;
const measure = document.getElementById("measure");
const found = document.getElementById("found");
const detail = document.getElementById("detail");
let hot = -1, pinned = false, step = 0, words = "";

const escapes = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };
const plain = (text) => text.replace(/[&<>]/g, (c) => escapes[c]);

function short(n) {
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (n >= unit) return (n / unit).toPrecision(3) + " " + letter;
  }
  return String(n);
}

// Names of operations, types and numbers, told apart by how the text is written.
function coloured(stage, text) {
  const safe = plain(text);
  if (stage.name === "source") return safe;
  if (stage.name === "StableHLO") {
    return safe
      .replace(/\b(stablehlo|chlo|func|call)\.?(\w*)/, "<b>$&</b>")
      .replace(/tensor&lt;.*?&gt;/g, "<i>$&</i>");
  }
  const typed = safe.replace(/: (~?\w[\w&;]*\[[\d,]*\])/g, ": <i>$1</i>");
  return typed
    .replace(/(^|= )(\w+)(?=[\[ ]|$)/, (all, before, name) => before + "<b>" + name + "</b>")
    .replace(/(-?\d[\d.e+-]*|inf|nan):(~?\w+\[[\d,]*\])/g, "<u>$1</u><i>:$2</i>");
}

class Column {
  constructor(stage, number) {
    [this.text, this.depth, this.source, this.how, this.flops, this.bytes, this.inside, this.ms] =
      stage.columns;
    this.stage = stage;
    this.closed = new Set();
    this.text.forEach((t, i) => { if (this.inside[i] && /^\d+ arguments$/.test(t)) this.closed.add(i); });
    this.hits = new Set();
    this.bySource = new Map();
    this.source.forEach((s, i) => {
      if (s < 0) return;
      if (!this.bySource.has(s)) this.bySource.set(s, []);
      this.bySource.get(s).push(i);
    });
    // A row that holds others has their cost; it takes no part in the scale.
    this.top = {};
    for (const what of ["flops", "bytes", "ms"]) {
      this.top[what] = this[what].reduce((m, v, i) => (this.inside[i] ? m : Math.max(m, v)), 0);
    }
    this.build(number);
    this.refold();
  }

  build(number) {
    const section = document.createElement("section");
    const lines = this.source.filter((s) => s >= 0 || this.stage.name !== "source").length;
    const count = this.stage.equations ? this.stage.equations + " equations" : lines + " lines";
    section.innerHTML =
      `<h2 title="Close or open this column">${plain(this.stage.name)}<small>${count}</small></h2>` +
      `<div class="body"><div class="view" tabindex="0" role="region" aria-label="${plain(this.stage.name)}">` +
      `<div class="pad"><div class="rows"></div></div></div><canvas></canvas></div>`;
    document.getElementById("stages").append(section);
    this.view = section.querySelector(".view");
    this.pad = section.querySelector(".pad");
    this.rows = section.querySelector(".rows");
    this.strip = section.querySelector("canvas");
    section.querySelector("h2").onclick = () => { section.classList.toggle("closed"); renderAll(); };
    this.view.addEventListener("scroll", () => this.later(), { passive: true });
    this.rows.addEventListener("mouseover", (e) => point(this, rowOf(e), false));
    this.rows.addEventListener("click", (e) => this.clicked(e));
    this.strip.onclick = (e) => {
      const share = e.offsetY / this.strip.clientHeight;
      this.view.scrollTop = share * this.seen.length * ROW - this.view.clientHeight / 2;
    };
    const wide = this.text.reduce((m, t, i) => Math.max(m, t.length + 2 * this.depth[i]), 0);
    this.pad.style.width = `calc(${Math.min(wide, 420) + 6}ch)`;
    this.pad.style.fontFamily = "ui-monospace, monospace";
    this.number = number;
  }

  clicked(e) {
    const i = rowOf(e);
    if (i < 0) return;
    if (e.target.classList.contains("fold") && this.inside[i]) {
      this.closed.has(i) ? this.closed.delete(i) : this.closed.add(i);
      this.refold();
      this.render();
      return;
    }
    point(this, i, true);
  }

  refold() {
    this.seen = [];
    for (let i = 0; i < this.text.length; i++) {
      this.seen.push(i);
      if (this.closed.has(i)) i += this.inside[i];
    }
    this.pad.style.height = this.seen.length * ROW + "px";
    this.place = new Int32Array(this.text.length).fill(-1);
    this.seen.forEach((i, at) => { this.place[i] = at; });
  }

  heat(i) {
    const what = measure.value;
    if (!what || this.inside[i] && this.stage.name !== "source" || !this.top[what]) return 0;
    return Math.sqrt(this[what][i] / this.top[what]);
  }

  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.render(true); });
  }

  render(scrolled) {
    const height = this.view.clientHeight;
    const first = Math.max(0, Math.floor(this.view.scrollTop / ROW) - MORE);
    const last = Math.min(this.seen.length, Math.ceil((this.view.scrollTop + height) / ROW) + MORE);
    const made = [];
    for (let at = first; at < last; at++) made.push(this.row(this.seen[at]));
    this.rows.innerHTML = made.join("");
    this.rows.style.transform = `translateY(${first * ROW}px)`;
    this.paint(scrolled);
  }

  row(i) {
    const heat = this.heat(i);
    const classes = ["row"];
    if (data.hows[this.how[i]].includes("transpose of")) classes.push("back");
    if (this.source[i] < 0) classes.push("head");
    if (this.hits.has(i)) classes.push("hit");
    if (hot >= 0 && this.source[i] === hot) classes.push("hot");
    if (this.now === i) classes.push("now");
    const tint = heat ? ` style="--h:${(0.08 + 0.92 * heat).toFixed(2)}"` : "";
    const fold = this.inside[i] ? (this.closed.has(i) ? "▸" : "▾") : "";
    const indent = this.stage.name === "source" ? "" : "  ".repeat(this.depth[i]);
    const hidden = this.closed.has(i) ? `  <i>⋯ ${this.inside[i]} lines</i>` : "";
    return `<div class="${classes.join(" ")}" data-i="${i}"${tint}><span class="cost"></span>` +
      `<span class="fold">${fold}</span>${indent}${coloured(this.stage, this.text[i])}${hidden}</div>`;
  }

  // The whole column at a glance: where it costs, where the lit lines and the matches are. The
  // picture without the frame of what is in sight is kept while one scrolls.
  paint(scrolled) {
    const height = this.strip.clientHeight, width = 12;
    if (!height) return;
    const style = getComputedStyle(document.documentElement);
    const each = height / Math.max(this.seen.length, height / 4);
    if (!scrolled || !this.picture) this.picture = this.painted(style, height, width, each);
    const draw = this.strip.getContext("2d");
    this.strip.width = this.picture.width;
    this.strip.height = this.picture.height;
    draw.drawImage(this.picture, 0, 0);
    const ratio = this.picture.width / width;
    draw.scale(ratio, ratio);
    const top = this.view.scrollTop / ROW * each, tall = this.view.clientHeight / ROW * each;
    draw.strokeStyle = style.getPropertyValue("--soft");
    draw.strokeRect(0.5, top + 0.5, width - 1, Math.max(3, Math.min(tall, height - top) - 1));
  }

  painted(style, height, width, each) {
    const picture = document.createElement("canvas");
    const ratio = window.devicePixelRatio || 1;
    picture.width = width * ratio;
    picture.height = height * ratio;
    const draw = picture.getContext("2d");
    draw.scale(ratio, ratio);
    const mark = (i, x, least) => {
      if (this.place[i] >= 0) draw.fillRect(x, this.place[i] * each, 6, Math.max(least, each));
    };
    draw.fillStyle = `rgb(${style.getPropertyValue("--heat")})`;
    this.seen.forEach((i) => {
      const heat = this.heat(i);
      if (heat < 0.05) return;
      draw.globalAlpha = heat;
      mark(i, 0, 1);
    });
    draw.globalAlpha = 1;
    draw.fillStyle = style.getPropertyValue("--name");
    this.hits.forEach((i) => mark(i, 6, 2));
    draw.fillStyle = style.getPropertyValue("--hotline");
    (this.bySource.get(hot) || []).forEach((i) => mark(i, 6, 2));
    return picture;
  }

  open(i) {
    for (const c of [...this.closed]) if (c < i && i <= c + this.inside[c]) this.closed.delete(c);
    if (this.place[i] < 0) this.refold();
  }

  show(i) {
    this.open(i);
    const y = this.place[i] * ROW, top = this.view.scrollTop;
    if (y < top + ROW || y > top + this.view.clientHeight - 3 * ROW) {
      this.view.scrollTop = y - this.view.clientHeight / 3;
    }
  }

  search(text) {
    this.hits = new Set();
    this.now = undefined;
    if (!text) return;
    this.lower = this.lower || this.text.map((t) => t.toLowerCase());
    this.lower.forEach((t, i) => { if (t.includes(text)) this.hits.add(i); });
  }
}

const rowOf = (e) => {
  const row = e.target.closest(".row");
  return row ? Number(row.dataset.i) : -1;
};

const columns = data.stages.map((s, n) => new Column(s, n));
if (!columns.some((c) => c.top.ms)) measure.querySelector("[value=ms]").remove();
const renderAll = () => columns.forEach((c) => c.render(false));

function point(column, i, click) {
  if (i < 0) return;
  describe(column, i);
  if (pinned && !click) return;
  const source = column.source[i];
  if (click) pinned = source >= 0;
  if (click && source >= 0) {
    columns.filter((c) => c !== column).forEach((c) => {
      const rows = c.bySource.get(source);
      if (rows) c.show(rows[0]);
    });
  }
  if (source === hot && !click) return;
  hot = source;
  renderAll();
}

function describe(column, i) {
  const source = column.source[i], parts = [];
  if (source >= 0) {
    parts.push(data.places[source]);
    const n = (column.bySource.get(source) || []).length;
    if (column.stage.equations) parts.push(n === 1 ? "its only equation here" : `one of ${n} equations of that line`);
  }
  const how = data.hows[column.how[i]];
  if (how) parts.push(how);
  if (column.flops[i] || column.bytes[i]) {
    parts.push(short(column.flops[i]) + " FLOPs", short(column.bytes[i]) + "B moved");
  }
  if (column.ms[i]) parts.push(column.ms[i].toPrecision(3) + " ms");
  detail.innerHTML = `<code>${plain(column.text[i].trim())}</code>` +
    parts.map((p) => `<span>${plain(p)}</span>`).join("");
}

const box = document.getElementById("search");
box.addEventListener("input", () => {
  words = box.value.trim().toLowerCase();
  step = 0;
  columns.forEach((c) => c.search(words));
  go();
});
box.addEventListener("keydown", (e) => {
  if (e.key !== "Enter" || !words) return;
  step += e.shiftKey ? -1 : 1;
  go();
});

// Every column goes to its own match number `step`.
function go() {
  columns.forEach((c) => {
    const rows = [...c.hits];
    if (!rows.length) return;
    c.now = rows[((step % rows.length) + rows.length) % rows.length];
    c.show(c.now);
  });
  found.textContent = words
    ? columns.map((c) => `${c.stage.name} ${c.hits.size}`).join(" · ") + " (Enter: next)" : "";
  renderAll();
}

measure.addEventListener("change", renderAll);
document.getElementById("fold").addEventListener("click", (e) => {
  const close = e.target.textContent === "Fold all";
  e.target.textContent = close ? "Open all" : "Fold all";
  columns.forEach((c) => {
    c.closed = new Set();
    if (close) c.inside.forEach((n, i) => { if (n && i) c.closed.add(i); });
    c.refold();
  });
  renderAll();
});
document.addEventListener("keydown", (e) => {
  if (e.key !== "Escape") return;
  pinned = false;
  hot = -1;
  renderAll();
});
window.addEventListener("resize", () => renderAll());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", renderAll);

renderAll();
document.documentElement.dataset.ready = Math.round(performance.now());
