// What the page asks of the service: the public API alone, with the key that the user gave for this tab.

const KEPT = "tilewright-key";

export const key = {
  get: () => sessionStorage.getItem(KEPT) || "",
  set: (text) => (text ? sessionStorage.setItem(KEPT, text) : sessionStorage.removeItem(KEPT)),
};

/** A problem document (RFC 9457), or what stood in its place. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || `the service answered ${status}`);
    this.status = status;
    this.fix = body.fix || "";
    this.refusals = body.refusals || [];
  }
}

let linked = ""; // the token of the share link that is looked at, in place of the key

/** Ask with the token of a share link from now on, or with the key again when there is none. */
export function lookThrough(token) {
  linked = token;
}

function headers(more = {}) {
  const sent = linked || key.get();
  return sent ? { Authorization: `Bearer ${sent}`, ...more } : more;
}

/** The answer to a request. Throws Problem. */
export async function ask(method, path, { json, body, signal, type, headers: more = {}, anyStatus = false } = {}) {
  const kind = json === undefined ? type : "application/json";
  const answer = await fetch(path, {
    method,
    signal,
    headers: headers(kind ? { "Content-Type": kind, ...more } : more),
    body: json === undefined ? body : JSON.stringify(json),
  });
  if (!answer.ok && !anyStatus) {
    throw new Problem(answer.status, await answer.json().catch(() => ({})));
  }
  return answer;
}

export async function get(path, more = {}) {
  return (await ask("GET", path, more)).json();
}

export async function getText(path, more = {}) {
  return (await ask("GET", path, more)).text();
}

/** Fetch what a link could not, since a link carries no key, and hand it to the browser as a file. */
export async function download(path, name) {
  const blob = await (await ask("GET", path)).blob();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

/** Open a document of the service in a tab of its own, behind a policy that lets it load and run nothing. */
export async function openDocument(path) {
  const blob = await (await ask("GET", path)).blob();
  window.open(URL.createObjectURL(blob), "_blank", "noopener");
}

/** Send a form; `progress` is told the part that is sent. Throws Problem. */
export function send(path, form, progress = () => {}) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", path);
    for (const [name, value] of Object.entries(headers())) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => event.lengthComputable && progress(event.loaded / event.total);
    request.onerror = () => reject(new Problem(0, { detail: "the service cannot be reached", fix: "is it running?" }));
    request.onload = () => {
      let body = {};
      try { body = JSON.parse(request.responseText); } catch { /* the status says enough */ }
      if (request.status < 400) resolve(body);
      else reject(new Problem(request.status, body));
    };
    request.send(form);
  });
}

/** Server-sent events of `path` after event `after`, until the stream ends or `signal` aborts. */
export async function follow(path, after, onEvent, signal) {
  const answer = await fetch(path, { headers: headers(after ? { "Last-Event-ID": String(after) } : {}), signal });
  if (!answer.ok) throw new Problem(answer.status, await answer.json().catch(() => ({})));
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5));
      if (data.length) onEvent(JSON.parse(data.join("\n")));
    }
  }
}
