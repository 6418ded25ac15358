// The frame of the page: who is asked for, what the address says is shown.

import { html, render, useEffect, useErrorBoundary, useState } from "/web/vendor/htm-preact.js";
import { get, key, lookThrough } from "/web/api.js";
import { Benchmark, Benchmarks } from "/web/benchmarks.js";
import { Compile } from "/web/compile.js";
import { Job } from "/web/job.js";
import { Jobs } from "/web/jobs.js";
import { Operations } from "/web/operations.js";
import { Records } from "/web/records.js";
import { Failure } from "/web/shown.js";

const PLACES = [["jobs", "Jobs"], ["compile", "Compile"], ["benchmarks", "Benchmarks"], ["records", "Measurements"], ["operations", "Service"]];

function useAddress() {
  const read = () => location.hash.replace(/^#\/?/, "") || "jobs";
  const [address, set] = useState(read());
  useEffect(() => {
    const changed = () => set(read());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return address;
}

function Login({ entered }) {
  const [text, setText] = useState("");
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    key.set(text.trim());
    try {
      entered(await get("/me"));
    } catch (problem) {
      key.set("");
      setError(problem);
    }
  };
  return html`<main>
    <h1>Tilewright</h1>
    <p>Send an ONNX model, get back one file that runs it fast, with proof that it computes the same.</p>
    <form onSubmit=${submit} class="row">
      <label class="field">API key
        <input id="key" type="password" autocomplete="off" size="44" value=${text} onInput=${(event) => setText(event.target.value)} />
      </label>
      <button class="main">Enter</button>
    </form>
    <p class="quiet">A service on your own machine keeps its key in the file <code>api_key</code> of its data folder. The key
      stays in this tab and goes when you close it.</p>
    <${Failure} error=${error} />
  </main>`;
}

/** What an address says after `?`. */
const asked = (address) => new URLSearchParams(address.split("?")[1] || "");

function View({ address, me }) {
  const [broken] = useErrorBoundary((error) => console.error(error));
  if (broken) return html`<${Failure} error=${{ message: `This view failed: ${broken.message}`, fix: "load the page again; if it stays, report it" }} />`;
  const [place, id, ...more] = address.split("?")[0].split("/");
  switch (place) {
    case "compile": {
      const from = asked(address).get("job") || "";
      return html`<${Compile} from=${from} node=${asked(address).get("node") || ""} key=${from} />`;
    }
    case "benchmarks": return id ? html`<${Benchmark} id=${id} key=${id} />` : html`<${Benchmarks} />`;
    case "records": return html`<${Records} />`;
    case "operations": return html`<${Operations} me=${me} />`;
    default: return id ? html`<${Job} id=${id} tab=${more[0] || "overview"} node=${asked(address).get("node") || ""} key=${id} />` : html`<${Jobs} />`;
  }
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
  return html`<${Own} address=${address} />`;
}

function Own({ address }) {
  const [me, setMe] = useState(null);
  const [ready, setReady] = useState(!key.get());
  useEffect(() => {
    if (key.get()) get("/me").then(setMe).catch(() => key.set("")).finally(() => setReady(true));
  }, []);
  useEffect(() => document.querySelector("main")?.focus(), [address.split("/")[0]]);
  if (!ready) return null;
  if (!me) return html`<${Login} entered=${setMe} />`;
  const here = address.split(/[/?]/)[0];
  const leave = () => { key.set(""); setMe(null); };
  return html`
    <header>
      <strong><img src="/web/icon.svg" alt="" width="18" height="18" /> Tilewright</strong>
      <nav class="row" aria-label="Views">${PLACES.map(([place, name]) => html`
        <a href="#/${place}" aria-current=${here === place ? "page" : null}>${name}</a>`)}</nav>
      <a class="far" href="/docs">API</a>
      <button type="button" onClick=${leave} title="Forget the key">${me.owner}: leave</button>
    </header>
    <main tabindex="-1"><${View} address=${address} me=${me} key=${here} /></main>`;
}

render(html`<${App} />`, document.getElementById("app"));
