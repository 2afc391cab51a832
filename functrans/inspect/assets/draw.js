// The page around picture.js: moving, zooming, opening and closing.
const data = JSON.parse(document.getElementById("data").textContent);
const stage = document.getElementById("picture"), about = document.getElementById("about");
let closed = data.closed, scale = 1, left = 0, top_ = 0, held = null, moved = false;

const svg = () => stage.firstElementChild;
const place = () => { svg().style.transform = `translate(${left}px, ${top_}px) scale(${scale})`; };
const size = () => [svg().width.baseVal.value, svg().height.baseVal.value];

function fit(least) {
  const [w, h] = size();
  scale = Math.max(least, Math.min(1, stage.clientWidth / w, stage.clientHeight / h));
  const room = stage.clientWidth - w * scale;
  left = room >= 0 ? room / 2
    : Math.min(0, Math.max(room, stage.clientWidth / 2 - scale * middleOfTop()));
  top_ = 0;
  place();
}

// Across, of the highest box: where a picture that is wider than the page begins to be read.
function middleOfTop() {
  const boxes = [...stage.querySelectorAll(".box rect")].map((r) => r.getBBox());
  const top = boxes.reduce((a, b) => (b.y < a.y ? b : a));
  return top.x + top.width / 2;
}

function draw() {
  stage.innerHTML = picture(data.graph, closed);
  place();
}

// Keeps the box that was clicked where it is.
function toggle(id) {
  const before = box(id).getBoundingClientRect();
  closed = closed.includes(id) ? closed.filter((c) => c !== id) : [...closed, id];
  draw();
  const after = box(id).getBoundingClientRect();
  left += before.left - after.left;
  top_ += before.top - after.top;
  place();
}

const box = (id) => stage.querySelector(`.box[data-id="${id}"]`);

function all(graph) {
  return graph.nodes.flatMap((n) => n.inside && n.inside.length
    ? [n.id, ...n.inside.flatMap((i) => all(i.graph))] : []);
}

stage.addEventListener("click", (e) => {
  const g = e.target.closest(".folds");
  if (g && !moved) toggle(Number(g.dataset.id));
});
stage.addEventListener("mouseover", (e) => {
  const title = e.target.closest(".box")?.querySelector("title");
  if (title) about.textContent = title.textContent;
});
stage.addEventListener("pointerdown", (e) => { held = [e.clientX - left, e.clientY - top_]; moved = false; });
window.addEventListener("pointermove", (e) => {
  if (!held) return;
  const to = [e.clientX - held[0], e.clientY - held[1]];
  moved = moved || Math.hypot(to[0] - left, to[1] - top_) > 4;
  if (!moved) return;
  [left, top_] = to;
  stage.classList.add("held");
  place();
});
window.addEventListener("pointerup", () => { held = null; stage.classList.remove("held"); });
stage.addEventListener("wheel", (e) => {
  e.preventDefault();
  const factor = Math.exp(-e.deltaY * 0.0015), next = Math.min(4, Math.max(0.03, scale * factor));
  const edge = stage.getBoundingClientRect(), x = e.clientX - edge.left, y = e.clientY - edge.top;
  left = x - (x - left) * next / scale;
  top_ = y - (y - top_) * next / scale;
  scale = next;
  place();
}, { passive: false });
document.getElementById("fit").onclick = () => fit(0);
document.getElementById("full").onclick = () => fit(1);
document.getElementById("open").onclick = () => { closed = []; draw(); fit(0); };
document.getElementById("close").onclick = () => { closed = all(data.graph); draw(); fit(0); };

draw();
fit(0.6);
document.documentElement.dataset.ready = Math.round(performance.now());
