// Filters of long lists, and links into closed details. Pages can be read without it.
"use strict";
// Shows the first items of a list that pass, and as many more at each click on its button.
const listed = (list, most, passes, report) => {
  const items = Array.from(list.children);
  const button = document.querySelector(`button.more[data-list="${list.id}"]`);
  let limit = most;
  const apply = () => {
    let count = 0;
    items.forEach((item, index) => {
      const found = passes(item, index);
      count += found ? 1 : 0;
      item.hidden = !found || count > limit;
    });
    if (button) button.hidden = count <= limit;
    if (report) report(Math.min(count, limit), count, items.length);
  };
  if (button) button.addEventListener("click", () => { limit += most; apply(); });
  apply();
  return () => { limit = most; apply(); };
};
for (const form of document.querySelectorAll("form.filters")) {
  const list = document.getElementById(form.dataset.list);
  const texts = Array.from(list.children, (item) => item.textContent.toLowerCase());
  const shown = form.querySelector("output");
  const passes = (control, item, text) => {
    const field = control.dataset.field;
    if (control.type === "search") return control.value.toLowerCase().split(/\s+/).every((word) => text.includes(word));
    if (control.type === "range") return Number(item.dataset[field]) >= Number(control.value);
    if (control.type === "checkbox") return control.checked || !(field in item.dataset);
    return !control.value || item.dataset[field] === control.value;
  };
  const controls = Array.from(form.elements).filter((control) => control.dataset.field);
  const words = (number) => number.toLocaleString("en");
  const apply = listed(
    list,
    Number(form.dataset.most) || Infinity,
    (item, index) => controls.every((control) => passes(control, item, texts[index])),
    (count, found, all) => { shown.textContent = `${words(found)} of ${words(all)} found, ${words(count)} shown`; },
  );
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
}
for (const list of document.querySelectorAll("[data-most]:not(form)")) listed(list, Number(list.dataset.most), () => true);
const reveal = () => {
  const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  if (target) target.scrollIntoView();
};
addEventListener("hashchange", reveal);
reveal();
if ("IntersectionObserver" in window) {
  const links = new Map(Array.from(document.querySelectorAll(".sections a"), (link) => [link.hash.slice(1), link]));
  const observer = new IntersectionObserver((entries) => {
    const entry = entries.find((one) => one.isIntersecting);
    if (!entry) return;
    links.forEach((link, id) => (id === entry.target.id ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current")));
  }, { rootMargin: "-8% 0px -88% 0px" });
  links.forEach((_, id) => document.getElementById(id) && observer.observe(document.getElementById(id)));
}
