// The frame of the page: who is asked for, what the address says is shown.

import { html, render, useEffect, useErrorBoundary, useState } from "/web/vendor/htm-preact.js";
import { ask, get, lookThrough, Problem, signIn, whenLost } from "/web/api.js";
import { Benchmark, Benchmarks } from "/web/benchmarks.js";
import { Beside } from "/web/beside.js";
import { Compile } from "/web/compile.js";
import { Job } from "/web/job.js";
import { Jobs } from "/web/jobs.js";
import { Operations } from "/web/operations.js";
import { Records } from "/web/records.js";
import { Act, Failure, useTitle } from "/web/shown.js";
import { Welcome } from "/web/welcome.js";

const ENDED = { detail: "Your session has ended.", fix: "sign in again: what you were looking at is still there" };

const PLACES = [["jobs", "Jobs"], ["compile", "Compile"], ["benchmarks", "Benchmarks"], ["records", "Measurements"], ["operations", "Service"]];

function useAddress() {
  const read = () => location.hash.replace(/^#\/?/, "") || "start";
  const [address, set] = useState(read());
  useEffect(() => {
    const changed = () => set(read());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return address;
}

/** What an address says after `?`. */
const asked = (address) => new URLSearchParams(address.split("?")[1] || "");

function View({ address, me }) {
  const [broken] = useErrorBoundary((error) => console.error(error));
  if (broken) return html`<${Failure} error=${{ message: `This view failed: ${broken.message}`, fix: "load the page again; if it stays, report it" }} />`;
  const [place, id, ...more] = address.split("?")[0].split("/");
  switch (place) {
    case "start": return html`<${Compile} first=${true} />`;
    case "compile": {
      const from = asked(address).get("job") || "";
      return html`<${Compile} from=${from} node=${asked(address).get("node") || ""} key=${from} />`;
    }
    case "beside": return html`<${Beside} ids=${[id, more[0] || id]} key=${address} />`;
    case "benchmarks": return html`<${Titled} title=${id ? "Benchmark" : "Benchmarks"}>${id ? html`<${Benchmark} id=${id} key=${id} />` : html`<${Benchmarks} />`}<//>`;
    case "records": return html`<${Titled} title="Measurements"><${Records} /><//>`;
    case "operations": return html`<${Titled} title="Service"><${Operations} me=${me} /><//>`;
    default: return id ? html`<${Job} id=${id} tab=${more[0] || "overview"} node=${asked(address).get("node") || ""} key=${id} />` : html`<${Titled} title="Jobs"><${Jobs} /><//>`;
  }
}

/** A view whose tab is called the same whatever it shows. */
function Titled({ title, children }) {
  useTitle(title);
  return html`<div>${children}</div>`;
}

/** What whoever has a link to a job sees of it, without a key: `shared/JOB/TOKEN`, then the part of the job. */
function Shared({ job, token, tab, node }) {
  lookThrough(token);
  const base = `#/shared/${job}/${token}`;
  return html`
    <header><strong>Tilewright</strong> <span class="quiet">a shared job, read only</span></header>
    <main tabindex="-1"><${Job} id=${job} tab=${tab} node=${node} base=${base} link=${{ download: opensFile(token) }} key=${token} /></main>`;
}

/** Whether a link's token opens the artifact's file: the lowest bit of its first byte. */
function opensFile(token) {
  try {
    return (atob(token.slice(4, 8).replaceAll("-", "+").replaceAll("_", "/")).charCodeAt(0) & 1) === 1;
  } catch {
    return false;
  }
}

function App() {
  const address = useAddress();
  const [place, job, token, tab] = address.split("?")[0].split("/");
  if (place === "shared" && token) return html`<${Shared} job=${job} token=${token} tab=${tab || "overview"} node=${asked(address).get("node") || ""} />`;
  lookThrough("");
  if (place === "enter") return html`<${Enter} address=${address} />`;
  return html`<${Own} address=${address} />`;
}

let refused = null; // why the link by which somebody came let nobody in

/** By the link that `tilewright up` printed: `enter/TOKEN`, then what to show. The token is taken out of the address and the history. */
function Enter({ address }) {
  useTitle("");
  useEffect(() => {
    const [, token, ...view] = address.split("/");
    history.replaceState(null, "", `#/${view.join("/")}`);
    refused = null;
    signIn(token).catch((problem) => { refused = problem; }).finally(() => dispatchEvent(new Event("hashchange")));
  }, [address]);
  return html`<main tabindex="-1"><h1>Tilewright</h1><p class="quiet" role="status">Signing in …</p></main>`;
}

/** Who is signed in: [me, what went wrong, ask again, nobody is]; me is undefined until that is known, null for nobody. */
function useMe() {
  const [[me, error], set] = useState([undefined, null]);
  const look = async () => {
    try {
      set([await get("/me"), null]);
    } catch (problem) {
      set(problem.status === 401 ? [null, refused] : [undefined, problem]);
    }
  };
  useEffect(() => {
    whenLost(() => set(([was, why]) => [null, was ? new Problem(401, ENDED) : why]));
    look();
  }, []);
  return [me, error, look, () => set([null, null])];
}

function Own({ address }) {
  const [me, error, again, forget] = useMe();
  useEffect(() => document.querySelector("main")?.focus(), [address.split("/")[0]]);
  useEffect(() => { // somebody may have signed in meanwhile, in another tab
    if (me !== null) return undefined;
    addEventListener("focus", again);
    addEventListener("hashchange", again);
    return () => { removeEventListener("focus", again); removeEventListener("hashchange", again); };
  }, [me === null]);
  if (me === undefined) return html`<${Away} error=${error} again=${again} />`;
  if (!me) return html`<${Welcome} error=${error} entered=${again} />`;
  const here = address.split(/[/?]/)[0];
  const leave = async () => { await ask("DELETE", "/session").catch(() => {}); forget(); };
  return html`
    <header>
      <a class="home" href="#/"><strong><img src="/web/icon.svg" alt="" width="18" height="18" /> Tilewright</strong></a>
      <nav class="row" aria-label="Views">${PLACES.map(([place, name]) => html`
        <a href="#/${place}" aria-current=${here === place ? "page" : null}>${name}</a>`)}</nav>
      <a class="far" href="/docs">API</a>
      <button type="button" onClick=${leave} title="Signed in as ${me.owner}: end this session">Sign out</button>
    </header>
    <main tabindex="-1"><${View} address=${address} me=${me} key=${here} /></main>`;
}

/** Until it is known who is signed in, and where the service does not say. */
function Away({ error, again }) {
  useTitle("");
  return html`<main tabindex="-1"><h1>Tilewright</h1>
    ${error ? html`<${Failure} error=${error} /><p><${Act} name="Try again" main=${true} act=${again} /></p>`
    : html`<p class="quiet" role="status">Asking the service who you are …</p>`}</main>`;
}

render(html`<${App} />`, document.getElementById("app"));
