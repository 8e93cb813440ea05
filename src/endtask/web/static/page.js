// What all pages use: elements, requests with the CSRF token, messages.

/** Return an element with attributes and children; texts are inserted as texts, never as HTML. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Return the answer to a request as a value; throws an Error with the reason of the server. */
export async function request(method, address, value) {
  const options = { method, headers: {} };
  if (method !== "GET") {
    options.headers["X-CSRF-Token"] = document.querySelector('meta[name="csrf-token"]').content;
  }
  if (value instanceof Blob) {
    options.body = value;
  } else if (value !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(value);
  }
  let answer;
  try {
    answer = await fetch(address, options);
  } catch {
    throw new Error("The server cannot be reached. Is endtask serve still running?");
  }
  const text = await answer.text();
  const isJson = (answer.headers.get("content-type") ?? "").includes("json");
  const content = isJson ? JSON.parse(text) : text;
  if (!answer.ok) throw new Error(content.detail ?? `The server answered ${answer.status}.`);
  return content;
}

/** Show a message in an element, or hide the element if there is none. */
export function showMessage(target, message) {
  target.textContent = message ?? "";
  target.hidden = !message;
}

/** Make a button copy the text of an element. */
export function copies(button, source) {
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(source.textContent);
    const before = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = before; }, 1500);
  });
}
