// Start a run: upload a file, map its columns, choose a budget.
import { element, request, showMessage } from "/static/page.js";

const part = (id) => document.getElementById(id);
const form = part("start");
const ROLES = ["text", "text_pair", "label"];
let task = null;
const corpus = [];

async function upload(file) {
  return request("POST", `/api/uploads?name=${encodeURIComponent(file.name)}`, file);
}

function megabytes(bytes) {
  return bytes < 1e6 ? `${Math.max(1, Math.round(bytes / 1e3))} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

function columnsChosen() {
  return Object.fromEntries(ROLES.map((role) => [role, form.elements[role].value || null]));
}

function fillChoices(columns, used) {
  for (const role of ROLES) {
    const options = columns.map((name) => element("option", { value: name }, name));
    const none = role === "text_pair" ? "none" : "by its usual name";
    form.elements[role].replaceChildren(element("option", { value: "" }, none), ...options);
    form.elements[role].value = used[role] ?? "";
  }
}

function showRows(columns, rows) {
  const head = element("tr", {}, ...columns.map((name) => element("th", { scope: "col" }, name)));
  const body = rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, cell))));
  part("preview").replaceChildren(element("thead", {}, head), element("tbody", {}, ...body));
}

async function preview(columns) {
  const found = await request("POST", "/api/first-rows", { upload: task.id, columns });
  fillChoices(found.columns, found.used);
  showRows(found.columns, found.rows);
  part("summary").textContent = found.summary;
  showMessage(part("mapping-problem"), found.problem);
  part("mapping").hidden = false;
  part("run").disabled = found.problem !== null;
}

async function guarded(action) {
  try {
    showMessage(part("problem"), null);
    await action();
  } catch (error) {
    showMessage(part("problem"), error.message);
  }
}

async function takeTask(file) {
  part("uploaded").textContent = `Uploading ${file.name} …`;
  part("run").disabled = true;
  try {
    task = await upload(file);
    part("uploaded").textContent = `${task.name}, ${megabytes(task.bytes)}`;
  } catch (error) {
    part("uploaded").textContent = "";
    throw error;
  }
  if (!form.elements.name.value) form.elements.name.value = task.name.split(".")[0].replace(/^[^A-Za-z0-9]+/, "");
  await preview({});
}

async function takeCorpus(files) {
  for (const file of files) {
    const stored = await upload(file);
    corpus.push(stored.id);
    part("corpus-list").append(element("li", {}, `${stored.name}, ${megabytes(stored.bytes)}`));
  }
}

async function start() {
  part("run").disabled = true;
  part("doing").textContent = "Checking the data …";
  try {
    const { id } = await request("POST", "/api/runs", {
      name: form.elements.name.value,
      upload: task.id,
      columns: columnsChosen(),
      budget: form.elements.budget.value,
      preset: form.elements.preset.value,
      corpus,
      corpus_path: form.elements.corpus_path?.value ?? "",
    });
    location.assign(`/runs/${encodeURIComponent(id)}/live`);
  } finally {
    part("run").disabled = false;
    part("doing").textContent = "";
  }
}

part("file").addEventListener("change", (event) => {
  if (event.target.files.length) guarded(() => takeTask(event.target.files[0]));
});
part("corpus-files").addEventListener("change", (event) => guarded(() => takeCorpus(event.target.files)));
for (const role of ROLES) form.elements[role].addEventListener("change", () => guarded(() => preview(columnsChosen())));
form.addEventListener("submit", (event) => { event.preventDefault(); guarded(start); });

const drop = part("drop");
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => event.preventDefault());
drop.addEventListener("dragover", () => drop.classList.add("over"));
drop.addEventListener("dragleave", () => drop.classList.remove("over"));
drop.addEventListener("drop", (event) => {
  drop.classList.remove("over");
  if (event.dataTransfer.files.length) guarded(() => takeTask(event.dataTransfer.files[0]));
});
