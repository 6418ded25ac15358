// What somebody sees first: what this is, a place to drop a model, models to try, and what comes out.

import { html } from "/web/vendor/htm-preact.js";
import { ask, get, send } from "/web/api.js";
import { SAMPLES } from "/web/samples.js";
import { Act, Failure, seconds, State, useFetched } from "/web/shown.js";

const BUDGET_S = 5; // of tuning, so that somebody who tries a sample sees a result soon
const LATEST = 3;

export function About() {
  return html`<h1>Make an ONNX model fast</h1>
    <p class="lead">Tilewright compiles a model into one file that runs from Python or C. It joins operators into kernels,
      measures on this machine what runs fastest, and compares every output with a float64 reference. Nothing leaves the machine
      that the service runs on.</p>`;
}

export function Outcome() {
  return html`<h2>What comes out</h2>
    <ul class="plain">
      <li><b>One file</b>, <code>model.tw</code>: library, weights, sources and loader. <code>python model.tw --bench</code> runs it.</li>
      <li><b>How fast it is</b>: its latency here, beside ONNX Runtime's with the model as it came, timed in turns.</li>
      <li><b>How right it is</b>: the largest error of each output, on random and on extreme inputs.</li>
      <li><b>Why</b>: what was rewritten, each kernel with its tile and source, and when every core does what.</li>
    </ul>`;
}

export function Samples() {
  const compile = async (sample) => {
    const form = new FormData();
    form.append("model", new Blob([sample.make()]), sample.file);
    const { digest } = await send("/models", form);
    if (!(await get(`/models/${digest}`)).name) await ask("PATCH", `/models/${digest}`, { json: { name: sample.file } });
    const json = { model: digest, name: sample.file, options: { tuning_budget_s: BUDGET_S } };
    location.hash = `#/jobs/${(await (await ask("POST", "/compile", { json })).json()).id}`;
  };
  return html`<h2>Or try a sample</h2>
    <ul class="plain">${SAMPLES.map((sample) => html`<li key=${sample.file} class="row">
      <${Act} name=${sample.name} act=${() => compile(sample)} /> <span class="quiet">${sample.what}</span></li>`)}</ul>
    <p class="quiet">Networks of the literature with random weights: what they answer means nothing, how fast they are does.</p>`;
}

/** The latest jobs, for whoever comes again. */
export function Latest() {
  const [page, error] = useFetched(() => get(`/jobs?kind=compile&limit=${LATEST}`), []);
  if (error) return html`<${Failure} error=${error} />`;
  if (!page || !page.jobs.length) return null;
  return html`<div><h2>Your latest jobs</h2>
    <ul class="plain">${page.jobs.map((job) => html`<li key=${job.id} class="row">
      <a href="#/jobs/${job.id}">${job.name || job.id}</a> <${State} job=${job} /> <span class="quiet">${seconds(job.run_seconds)}</span></li>`)}
      <li><a href="#/jobs">All jobs</a></li></ul></div>`;
}
