// What the page asks of the service: the public API alone, in the session of whoever has signed in.

/** A problem document (RFC 9457), or what stood in its place. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || `the service answered ${status}`);
    this.status = status;
    this.fix = body.fix || "";
    this.refusals = body.refusals || [];
  }
}

let linked = ""; // the token of the share link that is looked at, in place of the session
let lost = () => {}; // is told when the session has ended

/** Ask with the token of a share link from now on, or in the session again when there is none. */
export function lookThrough(token) {
  linked = token;
}

/** Call `act` when an answer says that nobody is signed in any more. */
export function whenLost(act) {
  lost = act;
}

/** Sign in with an API key or, once, with the token of a link: the browser keeps a cookie that no script can read. Throws Problem. */
export async function signIn(token) {
  await checked(await fetch("/session", { method: "POST", headers: { Authorization: `Bearer ${token}` } }).catch(away));
}

function headers(more = {}) {
  return linked ? { Authorization: `Bearer ${linked}`, ...more } : more;
}

function away(error) {
  if (error.name === "AbortError") throw error;
  throw new Problem(0, { detail: "the service cannot be reached", fix: "is it running?" });
}

/** The answer, if it is none of a problem. Throws Problem. */
async function checked(answer) {
  if (answer.ok) return answer;
  if (answer.status === 401 && !linked && !answer.url.endsWith("/session")) lost();
  throw new Problem(answer.status, await answer.json().catch(() => ({})));
}

/** The answer to a request. Throws Problem. */
export async function ask(method, path, { json, body, signal, type, headers: more = {}, anyStatus = false } = {}) {
  const kind = json === undefined ? type : "application/json";
  const answer = await fetch(path, {
    method,
    signal,
    headers: headers(kind ? { "Content-Type": kind, ...more } : more),
    body: json === undefined ? body : JSON.stringify(json),
  }).catch(away);
  return anyStatus ? answer : checked(answer);
}

export async function get(path, more = {}) {
  return (await ask("GET", path, more)).json();
}

export async function getText(path, more = {}) {
  return (await ask("GET", path, more)).text();
}

/** Fetch what a plain link could not, since it tells nothing of failures, and hand it to the browser as a file. */
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
  const answer = await fetch(path, { headers: headers(after ? { "Last-Event-ID": String(after) } : {}), signal }).catch(away);
  await checked(answer);
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
