// All jobs of the caller, newest first, as they are now.

import { html, useEffect, useRef, useState } from "/web/vendor/htm-preact.js";
import { ask, download, follow, get } from "/web/api.js";
import { KINDS } from "/web/job_kinds.js";
import { Tags } from "/web/labels.js";
import { Elapsed, latencyOf, Speedup } from "/web/result.js";
import { Act, Awaited, brief, figures, moment, seconds, State, Table, useFetched } from "/web/shown.js";

const STATES = ["QUEUED", "LEASED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELLED"];

const ENDED = ["SUCCEEDED", "FAILED", "CANCELLED"];
const MOST_FOLLOWED = 3; // a browser opens six connections to a service that speaks HTTP/1.1
const SLOWLY_S = 5; // for jobs that are new, and those that are not followed
const SOON_MS = 300; // events come in bursts: the list is asked for once after them

/** Jobs that have not ended: those that run first, then the oldest. */
function followed(jobs) {
  const open = jobs.filter((job) => !ENDED.includes(job.state)).reverse();
  return [...open.filter((job) => job.state !== "QUEUED"), ...open.filter((job) => job.state === "QUEUED")].slice(0, MOST_FOLLOWED);
}

/** Ask again as soon as one of these jobs tells something. */
function useLive(ids, again) {
  const latest = useRef(again); // of the present filters
  latest.current = again;
  useEffect(() => {
    const stop = new AbortController();
    let due = 0;
    const soon = () => { due = due || setTimeout(() => { due = 0; latest.current(); }, SOON_MS); };
    for (const id of ids) follow(`/jobs/${id}/events`, 0, soon, stop.signal).then(soon, () => {});
    return () => { stop.abort(); clearTimeout(due); };
  }, [String(ids)]);
}

export function Jobs() {
  const [state, setState] = useState("");
  const [kind, setKind] = useState("compile");
  const [text, setText] = useState({ query: "", tag: "" });
  const [typed, setTyped] = useState(text); // which the list, drawn anew as it lives, must not wipe out
  const [model, setModel] = useState("");
  const [cursors, setCursors] = useState([]);
  const [models] = useFetched(() => get("/models?limit=50"), []);
  const query = new URLSearchParams({ limit: "50" });
  if (state) query.set("state", state);
  if (kind) query.set("kind", kind);
  if (text.query.trim()) query.set("query", text.query.trim());
  for (const tag of text.tag.split(/[\s,]+/).filter(Boolean)) query.append("tag", tag);
  if (model) query.set("model", model);
  if (cursors.length) query.set("cursor", cursors[cursors.length - 1]);
  const [page, error, again] = useFetched(() => get(`/jobs?${query}`), [String(query)], SLOWLY_S);
  useLive(page ? followed(page.jobs).map((job) => job.id) : [], again);
  const called = (job) => job.name || models?.models.find((one) => one.digest === job.model)?.name || brief(job.id);
  const choose = (set) => (event) => { set(event.target.value); setCursors([]); };
  const write = (name) => (event) => setTyped({ ...typed, [name]: event.target.value });
  const filter = (event) => { event.preventDefault(); setText(typed); setCursors([]); };
  return html`<div>
    <h1>Jobs</h1>
    <form class="row" role="search" onSubmit=${filter}>
      <${Choice} name="State" value=${state} options=${STATES} change=${choose(setState)} />
      <${Choice} name="Kind" value=${kind} options=${KINDS} change=${choose(setKind)} />
      <label class="field">Model
        <select name="model" value=${model} onChange=${choose(setModel)}>
          <option value="">all</option>
          ${(models ? models.models : []).map((one) => html`<option value=${one.digest} selected=${one.digest === model}>${one.name || brief(one.digest)}</option>`)}
        </select></label>
      <label class="field">Tags <input name="tag" size="12" value=${typed.tag} onInput=${write("tag")} /></label>
      <label class="field">Text in name or note <input name="query" type="search" maxlength="200" value=${typed.query} onInput=${write("query")} /></label>
      <button>Filter</button>
      <a class="button main" href="#/compile">Compile a model</a>
    </form>
    <${Awaited} value=${page} error=${error} of="your jobs" />
    ${page && html`<${Table} kind="jobs"
      columns=${["model", "state", "#latency", "#speed-up", "#error", "#took", "created", "", ""]}
      empty=${query.size > 2 ? "No job fits." : html`No job yet: <a href="#/compile">drop a model</a> to see whether it compiles, and how fast it gets.`}
      about=${page.jobs.some((job) => job.state === "SUCCEEDED") ? "Latency is of one inference; the speed-up beside ONNX Runtime with the model as it came; the error the largest of an output, of its largest value." : ""}
      rows=${page.jobs.map((job) => [
        html`<a href="#/${job.kind === "benchmark" ? "benchmarks" : "jobs"}/${job.id}">${called(job)}</a>
          <br /><span class="quiet id">${job.options.target || job.kind}${called(job) === brief(job.id) ? "" : `, ${brief(job.id)}`}</span> <${Tags} tags=${job.tags} />`,
        html`<${State} job=${job} /> <${Progress} job=${job} />`,
        seconds(latencyOf(job)),
        html`<${Speedup} compared=${job.compared} />`,
        job.largest_error === null ? "" : figures(job.largest_error),
        seconds(job.run_seconds),
        html`<span class="id">${moment(job.created_at)}</span>`,
        html`<${Outcome} job=${job} />`,
        html`<${Ways} job=${job} again=${again} />`,
      ])} />
      <div class="row">
        ${cursors.length > 0 && html`<button type="button" onClick=${() => setCursors(cursors.slice(0, -1))}>Newer</button>`}
        ${page.next_cursor && html`<button type="button" onClick=${() => setCursors([...cursors, page.next_cursor])}>Older</button>`}
      </div>`}</div>`;
}

export function Choice({ name, value, options, change }) {
  return html`<label class="field">${name}
    <select value=${value} onChange=${change}>
      <option value="">all</option>
      ${options.map((one) => html`<option value=${one} selected=${one === value}>${one.toLowerCase()}</option>`)}
    </select></label>`;
}

export function Progress({ job }) {
  if (job.state === "QUEUED") return job.blocked_by ? `waits for ${job.blocked_by} artifact(s)` : "waits for a worker";
  if (job.state !== "RUNNING") return job.state === "FAILED" && job.phase ? html`<span class="quiet">in ${job.phase}</span>` : "";
  return html`<progress value=${job.fraction} aria-label="done"></progress> ${job.phase || ""} <${Elapsed} job=${job} />`;
}

function Outcome({ job }) {
  if (job.problem) return html`<span class="bad said" title=${job.problem.message}>${job.problem.message}</span>`;
  if (job.state !== "SUCCEEDED" || job.kind !== "compile") return "";
  return html`<${Act} name="Download" act=${() => download(job.links.artifact, `${job.artifact_id}.tw`)} />`;
}

/** What may be done with a job that has not ended. */
export function Ways({ job, again }) {
  if (!["QUEUED", "LEASED", "RUNNING"].includes(job.state)) return "";
  const cancel = async () => { await ask("POST", `/jobs/${job.id}/cancel`); again(); };
  const finish = async () => { await ask("POST", `/jobs/${job.id}/finish`); again(); };
  return html`<span class="row">
    ${job.kind === "compile" && html`<${Act} name="Finish now" act=${finish} disabled=${job.finish_requested} />`}
    <${Act} name="Cancel" act=${cancel} disabled=${job.cancel_requested} /></span>`;
}
