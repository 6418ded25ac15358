// A model from this machine becomes a job: looked at first, with its dimensions to bind.

import { html, useEffect, useRef, useState } from "/web/vendor/htm-preact.js";
import { ask, get, Problem } from "/web/api.js";
import { Uploaded } from "/web/graph.js";
import { chosen, dropped, modelOf, upload } from "/web/upload.js";
import { Act, brief, Facts, Failure, nodesOf, Refusals, Table, bytes, figures, seconds, useFetched, useTitle } from "/web/shown.js";
import { About, Latest, Outcome, Samples } from "/web/start.js";

const SHOWN_NODES = 3;
const MOST_NAMES = 4;
const LONGEST_NAME = 200; // that the API takes

const PLAIN = ["target", "precision", "threads", "tuning_budget_s", "dims"]; // what has a field of its own

/**
 * The form; with `from`, the id of an earlier job, filled in with its model and options, to be changed. The operator `node`
 * of the model's graph is brought into sight. It is the `first` view too, with what a stranger wants to know around it.
 */
export function Compile({ from = "", node = "", first = false }) {
  useTitle(first ? "" : "Compile a model");
  const [files, setFiles] = useState([]);
  const [options, setOptions] = useState({ target: "cpu", threads: "", precision: "fp32", tuning_budget_s: "", dims: {}, others: "" });
  const [source, setSource] = useState(null); // the job that is cloned
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  const [sent, setSent] = useState(null);
  const [digest, setDigest] = useState("");
  const [targets] = useFetched(() => get("/targets"), []);
  const change = (name) => (event) => setOptions({ ...options, [name]: event.target.value });

  const look = async (model, given) => {
    setError(null);
    try {
      const answer = await (await ask("POST", "/preflight", { json: { model, options: plain(given) } })).json();
      setFound(answer);
      setOptions((now) => ({ ...now, dims: { ...sizesOf(answer), ...now.dims } }));
    } catch (problem) {
      setFound(null);
      setError(problem);
    }
  };
  const take = async (list) => {
    if (!list.length) return;
    const fresh = { ...options, dims: {} };
    setFiles(list);
    setSource(null);
    setOptions(fresh);
    setFound(null);
    setDigest("");
    setError(null);
    setSent(0);
    try {
      const model = await upload(list, setSent);
      setDigest(model);
      const { name } = await get(`/models/${model}`);
      if (!name) await ask("PATCH", `/models/${model}`, { json: { name: nameOf(list) } });
      setSent(1);
      await look(model, fresh);
    } catch (problem) {
      setError(problem);
    }
    setSent(null);
  };
  const compile = async () => {
    const [path, json] = source ? [`/jobs/${source.id}/clone`, { name: source.name, note: source.note, tags: source.tags }] : ["/compile", { model: digest, name: nameOf(files) }];
    const job = await (await ask("POST", path, { json: { ...json, options: plain(options, source !== null) } })).json();
    location.hash = `#/jobs/${job.id}`;
  };

  useEffect(() => {
    if (!from) return;
    get(`/jobs/${from}`).then((job) => {
      const filled = filledIn(job.options);
      setSource(job);
      setOptions(filled);
      setDigest(job.model);
      look(job.model, filled);
    }).catch(setError);
  }, []);

  const target = targets && targets.targets.find((one) => one.name === options.target);
  const idle = first && !files.length && !error;
  return html`<div>
    ${idle ? html`<${About} />` : html`<h1>${source ? "Compile with changes" : "Compile a model"}</h1>`}
    ${source && html`<p>The model of <a href="#/jobs/${source.id}">${source.name || brief(source.id)}</a>, with its options: change what is to be different.</p>`}
    <${Drop} files=${files} take=${take} />
    ${sent !== null && html`<p><progress value=${sent} aria-label="sent"></progress> ${sent < 1 ? "sending" : "looking at it"}</p>`}
    <${Failure} error=${error} />
    ${idle && html`<div class="beside"><section><${Samples} /><${Latest} /></section><section><${Outcome} /></section></div>`}
    ${(files.length > 0 || source) && html`
      <h2>Options</h2>
      <div class="row">
        <label class="field">Target
          <select value=${options.target} onChange=${change("target")}>
            ${(targets ? targets.targets : [{ name: "cpu" }]).map((one) => html`
              <option value=${one.name} selected=${one.name === options.target}>${one.name}</option>`)}
          </select></label>
        <label class="field">Precision
          <select value=${options.precision} onChange=${change("precision")}>
            ${((target && target.facts.precisions) || ["fp32"]).map((one) => html`<option value=${one} selected=${one === options.precision}>${one}</option>`)}
          </select></label>
        <label class="field">Threads
          <input type="number" min="1" placeholder=${source ? "every core" : "the service's default"} value=${options.threads} onInput=${change("threads")} /></label>
        <label class="field">Tuning budget, seconds
          <input type="number" min="0" step="any" placeholder=${source ? "as it was" : "the service's default"} value=${options.tuning_budget_s} onInput=${change("tuning_budget_s")} /></label>
      </div>
      ${target && html`<p class="quiet">${target.description}${target.notice ? html`<br /><span class="bad">${target.notice}</span>` : ""}</p>`}
      <details open=${source !== null}><summary>Other options, as JSON</summary>
        <label class="field">As <code>options</code> of the API
          <textarea name="others" rows="6" cols="60" spellcheck="false" placeholder='{"scheduler": "sequential"}' value=${options.others} onInput=${change("others")}></textarea></label></details>
      <${Dimensions} found=${found} options=${options} set=${setOptions} />
      <p class="row">
        <${Act} name="Look again" act=${() => look(digest, options)} disabled=${!digest} />
        <${Act} name="Compile" main=${true} act=${compile} disabled=${!digest || sent !== null} />
      </p>`}
    ${found && html`<${Findings} found=${found} path=${`/models/${digest}/graph`} node=${node} at=${(one) => `#/compile?${new URLSearchParams({ ...(from && { job: from }), node: one })}`} />`}</div>`;
}

function Drop({ files, take }) {
  const [over, setOver] = useState(false);
  const input = useRef(null);
  const folder = useRef(null);
  const leave = (event) => { event.preventDefault(); setOver(false); };
  const shown = files.slice(0, MOST_NAMES).map(({ path }) => path).join(", ") + (files.length > MOST_NAMES ? `, and ${files.length - MOST_NAMES} more` : "");
  return html`<label class="drop ${over ? "over" : ""}"
      onDragOver=${(event) => { event.preventDefault(); setOver(true); }}
      onDragLeave=${leave}
      onDrop=${async (event) => { leave(event); take(await dropped(event.dataTransfer)); }}>
    <input id="model" ref=${input} type="file" multiple onChange=${() => take(chosen(input.current.files))} />
    ${files.length
      ? html`<strong>${shown}</strong><br />
        <span class="quiet">${bytes(files.reduce((sum, { file }) => sum + file.size, 0))}; drop another to replace it</span>`
      : html`<strong>Drop an ONNX model here</strong>, or choose it<br />
        <span class="quiet">with its files of external data, if it has any, or the folder that they lie in</span>`}
  </label>
  <p><label class="quiet">A folder with external data: <input id="folder" ref=${folder} type="file" webkitdirectory
    onChange=${() => take(chosen(folder.current.files))} /></label></p>`;
}

function Dimensions({ found, options, set }) {
  const names = new Set([...Object.keys(options.dims), ...Object.keys(found ? sizesOf(found) : {})]);
  if (!names.size) return null;
  const change = (name) => (event) => set({ ...options, dims: { ...options.dims, [name]: event.target.value } });
  return html`<h2>Open dimensions</h2>
    <p class="quiet">One size (<code>8</code>), several (<code>1, 8</code>) or a range with the size to tune for
      (<code>1:4:16</code>). Filled in is what the service would take of itself.</p>
    <div class="row">${[...names].map((name) => html`
      <label class="field">${name}<input name=${`dim-${name}`} value=${options.dims[name] || ""} onInput=${change(name)} /></label>`)}</div>`;
}

/** What the service would take for each dimension that the model leaves open, as it is typed. */
function sizesOf({ inputs, corrected }) {
  const sizes = {};
  for (const { shape, taken } of inputs || []) {
    (shape || []).forEach((name, axis) => {
      const size = corrected?.dims?.[name] ?? taken?.[axis];
      if (typeof name === "string") sizes[name] = typeof size === "string" || !size ? "" : written(size);
    });
  }
  return sizes;
}

/** The file's name, by which people know a model. */
const nameOf = (files) => modelOf(files).path.split("/").pop().slice(0, LONGEST_NAME);

/** A size as it is typed. */
function written(size) {
  if (Array.isArray(size)) return size.join(", ");
  if (typeof size === "object") return [size.min, size.opt, size.max].filter((one) => one !== undefined).join(":");
  return String(size);
}

/** What became known of the model; `path` is where its graph is, `node` the operator of it to show, `at` where each is shown. */
function Findings({ found, path, node, at }) {
  const memory = found.memory_bytes || {};
  const [open, setOpen] = useState(false);
  const blamed = nodesOf({ ...found.problem, refusals: found.refusals || [] });
  return html`<div>
    <h2>${found.ok ? html`<span class="good">It can be compiled</span>` : html`<span class="bad">It cannot be compiled as it is</span>`}</h2>
    <${Failure} error=${found.problem} at=${at} />
    <${Refusals} refusals=${(found.problem ? [] : found.refusals) || []} at=${at} />
    ${found.queue && found.queue.notice && html`<p class="bad">${found.queue.notice}</p>`}
    ${(found.notices || []).map((notice) => html`<p class="quiet">${notice}</p>`)}
    <${Facts} facts=${[
      ["operators", found.nodes],
      ["work of one inference", found.gflop && found.gflop.value !== null && `${figures(found.gflop.value)} GFLOP`],
      ["weights", found.weight_bytes && bytes(found.weight_bytes)],
      ["memory of an inference", memory.run && bytes(memory.run)],
      ["memory to compile", memory.compile && bytes(memory.compile)],
      ["states carried", (found.carried || []).map((one) => `${one.output} is ${one.input} of the next inference`).join(", ")],
      ["states that could be carried (carry)", (found.suggested_states || []).map((one) => `${one.output} is ${one.input} of the next inference`).join(", ")],
      ["proving takes", found.proof && seconds(found.proof.seconds)],
      ["compiling takes", found.estimate && `about ${seconds(found.estimate.median_s)}, ${found.estimate.jobs ? `as ${found.estimate.jobs} jobs like it` : "by its size"}`],
      ["goes first", found.queue && found.queue.position ? `${found.queue.position} jobs` : ""],
      ["made already", found.cached ? "yes: answered at once" : ""],
    ]} />
    ${found.operators && html`<${Table} columns=${["operator", "#count", "verdict", "nodes"]} rows=${found.operators.map((one) => [
      one.domain === "ai.onnx" ? one.operator : `${one.domain}.${one.operator}`,
      one.count,
      html`<span class=${one.verdict === "supported" ? "good" : "bad"}>${[one.verdict, ...one.reasons].join(": ")}</span>`,
      one.nodes.slice(0, SHOWN_NODES).join(", ") + (one.count > SHOWN_NODES ? ", …" : ""),
    ])} />`}
    <h2>Graph</h2>
    ${open || blamed.length > 0 ? html`<${Uploaded} path=${path} blamed=${blamed} node=${node} />`
    : html`<button type="button" onClick=${() => setOpen(true)}>Show the graph</button>`}</div>`;
}

/** What is typed in the form for a job's options. */
function filledIn(options) {
  const several = Array.isArray(options.dims); // bindings, for which there are no fields
  const others = Object.fromEntries(Object.entries(options).filter(([name]) => !PLAIN.includes(name) || (several && name === "dims")));
  const dims = Object.fromEntries(Object.entries((!several && options.dims) || {}).map(([name, size]) => [name, written(size)]));
  const text = (value) => (value === null || value === undefined ? "" : String(value));
  return { target: options.target, precision: options.precision, threads: text(options.threads),
    tuning_budget_s: text(options.tuning_budget_s), dims, others: JSON.stringify(others, null, 2) };
}

/** The options as the API takes them: what was left empty is left out, or where `all` are told, as none. Throws Problem. */
function plain(options, all = false) {
  let others = {};
  try {
    others = JSON.parse(options.others.trim() || "{}");
  } catch (error) {
    throw new Problem(0, { detail: `the other options are no JSON: ${error.message}`, fix: 'write an object, such as {"scheduler": "sequential"}' });
  }
  const made = { ...others, target: options.target, precision: options.precision };
  if (all) Object.assign(made, { threads: null, dims: others.dims || {} });
  if (options.threads) made.threads = Number(options.threads);
  if (options.tuning_budget_s !== "") made.tuning_budget_s = Number(options.tuning_budget_s);
  const dims = Object.entries(options.dims).filter(([, text]) => text.trim());
  if (dims.length) made.dims = Object.fromEntries(dims.map(([name, text]) => [name, dimension(text)]));
  return made;
}

export function dimension(text) {
  if (text.includes(":")) {
    const ends = text.split(":").map(Number);
    return ends.length === 2 ? { min: ends[0], max: ends[1] } : { min: ends[0], opt: ends[1], max: ends[2] };
  }
  const sizes = text.split(",").map((one) => Number(one.trim()));
  return sizes.length === 1 ? sizes[0] : sizes;
}
