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

async function predict(event) {
  event.preventDefault();
  const problem = document.getElementById("problem");
  const second = form.elements.text_pair;
  const texts = [second ? [form.elements.text.value, second.value] : form.elements.text.value];
  const address = `/api/runs/${encodeURIComponent(form.dataset.run)}/predict`;
  try {
    const answer = await request("POST", address, { texts });
    showMessage(problem, null);
    showAnswer(answer.predictions[0]);
    document.getElementById("latency").textContent = `${answer.milliseconds.toFixed(1)} ms on the server`;
    document.getElementById("curl").textContent = curl(address, { texts });
    document.getElementById("answer").hidden = false;
  } catch (error) {
    showMessage(problem, error.message);
  }
}

if (form) {
  form.addEventListener("submit", predict);
  copies(document.getElementById("copy"), document.getElementById("curl"));
}
