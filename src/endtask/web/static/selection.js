// Search the selection, ask why a text is in it, and exclude texts.
import { element, request, showMessage } from "/static/page.js";

const PAGE = 20;
const page = document.getElementById("selection");
const part = (id) => document.getElementById(id);
const address = page && `/api/runs/${encodeURIComponent(page.dataset.run)}`;
let shown = 0;
let newest = 0;

function marked(spans) {
  return spans.map((span) => (span.marked ? element("mark", {}, span.text) : span.text));
}

function about(passage) {
  const facts = [passage.source, passage.id, `score ${passage.score.toPrecision(4)}, rank ${passage.rank}`];
  if (passage.matched > 1) facts.push(`matches ${passage.matched} train texts`);
  const line = element("p", { class: "about" }, ...facts.map((fact) => element("span", {}, fact)));
  if (passage.near_copy) line.append(element("span", { class: "pill" }, "near-copy of its query"));
  return line;
}

function evidence(passage) {
  if (!passage.query_id) return element("p", { class: "evidence" }, passage.reason);
  const line = element("p", { class: "evidence" });
  if (passage.label) line.append(element("span", { class: "pill" }, passage.label), " ");
  line.append(...marked(passage.query), ` (${passage.query_id})`);
  return line;
}

function queryLines(query) {
  const words = query.words.map((word) => `${word.word} ${word.score.toFixed(2)}`).join(", ");
  return element("li", {},
    element("span", { class: "pill" }, query.label), ` ${query.text} `,
    element("span", { class: "soft" }, `(${query.id}, score ${query.score.toFixed(2)}: ${words})`));
}

async function showWhy(details, passage) {
  if (!details.open || details.dataset.loaded) return;
  details.dataset.loaded = "yes";
  try {
    const why = await request("GET", `${address}/why?passage=${encodeURIComponent(passage.id)}`);
    const intro = `${why.reason}. ${why.matched ? `Retrieved by ${why.matched} train texts; the best:` : ""}`;
    details.append(element("p", { class: "small" }, intro), element("ul", { class: "small" }, ...why.queries.map(queryLines)));
  } catch (error) {
    delete details.dataset.loaded;
    showMessage(part("problem"), error.message);
  }
}

function setExcluded(item, button, excluded) {
  item.classList.toggle("excluded", excluded);
  button.textContent = excluded ? "Take back" : "Exclude";
  button.setAttribute("aria-pressed", String(excluded));
}

async function toggle(item, button, passage) {
  try {
    const wanted = button.getAttribute("aria-pressed") !== "true";
    const { excluded } = await request("POST", `${address}/exclude`, { ids: [passage.id], exclude: wanted });
    setExcluded(item, button, wanted);
    showMessage(part("problem"), null);
    part("excluded-count").textContent = `${excluded.length} ${excluded.length === 1 ? "text" : "texts"}`;
    part("pending").hidden = false;
  } catch (error) {
    showMessage(part("problem"), error.message);
  }
}

function passageItem(passage) {
  const title = passage.title ? [element("b", {}, passage.title), " — "] : [];
  const details = element("details", {}, element("summary", {}, "Why this text"));
  const button = element("button", { type: "button", "aria-label": `Exclude ${passage.id}` });
  const item = element("li", {}, about(passage), element("p", {}, ...title, ...marked(passage.text)), evidence(passage),
    details, element("p", { class: "actions" }, button));
  details.addEventListener("toggle", () => showWhy(details, passage));
  button.addEventListener("click", () => toggle(item, button, passage));
  setExcluded(item, button, passage.excluded);
  return item;
}

async function search(offset) {
  const number = ++newest;
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(part("search"))) if (value !== "") query.set(name, value);
  query.set("offset", offset);
  query.set("limit", PAGE);
  try {
    const found = await request("GET", `${address}/passages?${query}`);
    if (number !== newest) return; // a later search has begun
    showMessage(part("problem"), null);
    if (!offset) part("passages").replaceChildren();
    part("passages").append(...found.passages.map(passageItem));
    shown = offset + found.passages.length;
    part("found").textContent = `${found.matching.toLocaleString("en")} of ${found.total.toLocaleString("en")} texts`;
    part("more").hidden = shown >= found.matching;
  } catch (error) {
    showMessage(part("problem"), error.message);
  }
}

if (page) {
  let timer = 0;
  part("search").addEventListener("submit", (event) => { event.preventDefault(); search(0); });
  part("search").addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => search(0), 250); });
  part("more").addEventListener("click", () => search(shown));
  part("redo").addEventListener("click", async () => {
    try {
      await request("POST", `${address}/resume`, { start: page.dataset.stage });
      location.assign(`/runs/${encodeURIComponent(page.dataset.run)}/live`);
    } catch (error) {
      showMessage(part("problem"), error.message);
    }
  });
  search(0);
}
