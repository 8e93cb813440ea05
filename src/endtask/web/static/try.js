// Predict for a typed text.
import { copies, element, request, showMessage } from "/static/page.js";

const form = document.getElementById("try");
const MOST_BARS = 12;

function probabilityBar(label, probability) {
  const bar = element("span", { class: "bar-fill" });
  bar.style.width = `${(100 * probability).toFixed(2)}%`;
  return element(
    "div",
    { class: "bar-row" },
    element("span", { class: "bar-label" }, label),
    element("span", { class: "bar-track", "aria-hidden": "true" }, bar),
    element("span", { class: "bar-value" }, `${(100 * probability).toFixed(1)}%`),
  );
}

function tagged(answer) {
  return answer.words.map((word, index) =>
    element("span", { class: answer.tags[index].toUpperCase() === "O" ? "word" : "word tagged" },
      word, element("small", {}, answer.tags[index])));
}

function showAnswer(answer) {
  const value = document.getElementById("value");
  const bars = document.getElementById("probabilities");
  bars.replaceChildren();
  if (answer.tags) {
    value.replaceChildren(...tagged(answer));
    return;
  }
  const name = answer.label ?? (answer.labels ? answer.labels.join(", ") || "no label" : answer.score.toFixed(3));
  value.textContent = name;
  const known = Object.entries(answer.probabilities ?? {}).sort((one, other) => other[1] - one[1]);
  bars.append(...known.slice(0, MOST_BARS).map(([label, probability]) => probabilityBar(label, probability)));
  if (known.length > MOST_BARS) bars.append(element("p", { class: "soft" }, `and ${known.length - MOST_BARS} more`));
}

function curl(address, content) {
  const quoted = JSON.stringify(content).replaceAll("'", "'\\''");
  const token = form.dataset.token === "yes" ? "  -H \"Authorization: Bearer $TOKEN\" \\\n" : "";
  return `curl -s ${location.origin}${address} \\\n${token}  -H 'Content-Type: application/json' \\\n  -d '${quoted}'`;
}

function trainingText(row, value) {
  return element("li", {},
    element("p", { class: "about" }, element("span", { class: "pill" }, row.label), element("span", {}, value), element("span", {}, row.id)),
    element("p", {}, row.text));
}

async function explain() {
  const state = document.getElementById("why-state");
  state.textContent = "Reading the training texts …";
  try {
    const address = `/api/runs/${encodeURIComponent(form.dataset.run)}/explain`;
    const found = await request("POST", address, { text: typedText() });
    const influential = [...found.supporting, ...found.opposing];
    document.getElementById("nearest").replaceChildren(
      ...found.nearest.map((row) => trainingText(row, `similarity ${row.value.toFixed(2)}`)));
    document.getElementById("influential").replaceChildren(
      ...influential.map((row) => trainingText(row, `${row.value > 0 ? "supports" : "opposes"} (${row.value.toPrecision(2)})`)));
    document.getElementById("evidence").hidden = false;
    const some = found.compared < found.train_rows ? `${found.compared} of ${found.train_rows} training texts compared, ` : "";
    state.textContent = `${some}${found.milliseconds.toFixed(0)} ms`;
  } catch (error) {
    state.textContent = error.message;
  }
}

function typedText() {
  const second = form.elements.text_pair;
  return second ? [form.elements.text.value, second.value] : form.elements.text.value;
}

async function predict(event) {
  event.preventDefault();
  const problem = document.getElementById("problem");
  const texts = [typedText()];
  const address = `/api/runs/${encodeURIComponent(form.dataset.run)}/predict`;
  try {
    const answer = await request("POST", address, { texts });
    showMessage(problem, null);
    showAnswer(answer.predictions[0]);
    document.getElementById("latency").textContent = `${answer.milliseconds.toFixed(1)} ms on the server`;
    document.getElementById("curl").textContent = curl(address, { texts });
    document.getElementById("evidence").hidden = true;
    document.getElementById("why-state").textContent = "";
    document.getElementById("answer").hidden = false;
  } catch (error) {
    showMessage(problem, error.message);
  }
}

if (form) {
  form.addEventListener("submit", predict);
  document.getElementById("why").addEventListener("click", explain);
  copies(document.getElementById("copy"), document.getElementById("curl"));
}
