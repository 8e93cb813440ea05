// Mark wrong labels: every choice is stored at once.
import { request, showMessage } from "/static/page.js";

const page = document.getElementById("errors");
const problem = document.getElementById("problem");

async function mark(item, value) {
  const { split, id } = item.dataset;
  try {
    const { corrections } = await request("PUT", `/api/runs/${encodeURIComponent(page.dataset.run)}/labels`,
      { split, id, label: value });
    showMessage(problem, null);
    item.querySelector(".done").textContent = value === null ? "as given" : "marked";
    document.getElementById("marked-count").textContent =
      `${corrections.length} ${corrections.length === 1 ? "label" : "labels"} corrected.`;
  } catch (error) {
    showMessage(problem, error.message);
    problem.scrollIntoView({ block: "nearest" });
  }
}

function chosen(control) {
  if (control.value === "") return null;
  return control.dataset.number ? Number(control.value) : control.value;
}

if (page) {
  page.addEventListener("change", (event) => {
    if (event.target.matches(".right-label")) mark(event.target.closest("li"), chosen(event.target));
  });
  page.addEventListener("click", (event) => {
    if (!event.target.matches(".take")) return;
    const item = event.target.closest("li");
    item.querySelector(".right-label").value = event.target.dataset.label;
    mark(item, event.target.dataset.label);
  });
}
