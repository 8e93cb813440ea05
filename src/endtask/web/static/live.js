// Watch a run: its state every second, its curves every few seconds while it goes on.
import { element, request, showMessage } from "/static/page.js";

const SECOND = 1000;
const CHARTS_EVERY = 4 * SECOND;
const page = document.getElementById("live");
const address = `/api/runs/${encodeURIComponent(page.dataset.run)}`;
const part = (id) => document.getElementById(id);
let chartsAt = 0;
let wasAlive = false;

function duration(seconds) {
  if (seconds < 60) return `${Math.max(1, Math.round(seconds))} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function stateClass(progress) {
  if (progress.finished && !progress.alive) return "done";
  if (progress.alive) return "live";
  return progress.state.startsWith("damaged") ? "bad" : "open";
}

function showStages(stages) {
  part("stages").replaceChildren(...stages.map((stage) => element(
    "li",
    { class: stage.state },
    stage.name,
    element("small", {}, stage.seconds === null ? stage.state : duration(stage.seconds)),
  )));
}

function showStep(step) {
  part("step").hidden = !step?.description;
  if (!step?.description) return;
  part("description").textContent = step.description;
  const share = step.total ? Math.min(1, step.done / step.total) : null;
  const left = step.seconds_left === null ? "" : `, about ${duration(step.seconds_left)} left`;
  part("amount").textContent = share === null ? step.note : `${Math.floor(100 * share)}%${left} ${step.note}`;
  if (share === null) part("bar").removeAttribute("value");
  else part("bar").value = share;
}

function showProgress(progress) {
  part("state").textContent = progress.state;
  part("state").className = `state ${stateClass(progress)}`;
  const left = progress.step?.seconds_left_of_run;
  part("left").textContent = left ? `about ${duration(left)} left in all` : "";
  part("stop").hidden = !progress.alive;
  part("resume").hidden = progress.alive || progress.finished;
  showMessage(part("problem"), progress.problem);
  showStages(progress.stages);
  showStep(progress.step);
  part("warnings").hidden = !progress.warnings.length;
  part("warning-list").replaceChildren(...progress.warnings.map((line) => {
    const [level, ...text] = line.split(": ");
    return element("li", { class: level }, element("b", {}, level), ` ${text.join(": ")}`);
  }));
  part("log").textContent = progress.log.join("\n");
}

async function showCharts() {
  const { charts } = await request("GET", `${address}/charts`);
  const parser = new DOMParser();
  part("charts").replaceChildren(...charts.map((text) => {
    const figure = element("figure", {});
    figure.append(document.importNode(parser.parseFromString(text, "text/html").querySelector("svg"), true));
    return figure;
  }));
}

async function update() {
  try {
    const progress = await request("GET", `${address}/progress`);
    showProgress(progress);
    const now = Date.now();
    const isDue = progress.alive && now - chartsAt >= CHARTS_EVERY;
    if (isDue || !chartsAt || (wasAlive && !progress.alive)) {
      chartsAt = now;
      await showCharts();
    }
    wasAlive = progress.alive;
    setTimeout(update, progress.alive ? SECOND : 3 * SECOND);
  } catch (error) {
    showMessage(part("problem"), error.message);
    setTimeout(update, 3 * SECOND);
  }
}

async function change(action, value) {
  try {
    showProgress(await request("POST", `${address}/${action}`, value));
  } catch (error) {
    showMessage(part("problem"), error.message);
  }
}

part("stop").addEventListener("click", () => change("stop"));
part("resume").addEventListener("click", () => change("resume", {}));
update();
