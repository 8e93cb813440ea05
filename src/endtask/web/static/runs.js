// Two ticked runs can be compared, no more and no fewer.
const form = document.getElementById("runs");

function update() {
  const boxes = Array.from(form.querySelectorAll('input[name="run"]'));
  const ticked = boxes.filter((box) => box.checked).length;
  document.getElementById("compare").disabled = ticked !== 2;
  for (const box of boxes) box.disabled = ticked === 2 && !box.checked;
  document.getElementById("compare-hint").textContent =
    ticked === 2 ? "" : ticked === 1 ? "Tick another run." : "Tick two runs to compare them with a paired test.";
}

if (form) {
  form.addEventListener("change", update);
  update();
}
