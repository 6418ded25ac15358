// Two compilations beside each other: in what they differ, what came of each, and each kernel with its time in both.

import { html } from "/web/vendor/htm-preact.js";
import { ask, get } from "/web/api.js";
import { latencyOf, Speedup } from "/web/result.js";
import { Act, Awaited, brief, bytes, figures, seconds, Table, useFetched, useTitle } from "/web/shown.js";

/** The compilations with these ids. */
export function Beside({ ids }) {
  const [found, error] = useFetched(() => both(ids), [String(ids)]);
  useTitle(found ? found.map(({ name }) => name).join(" beside ") : "Two jobs");
  if (!found) return html`<div><h1>Two jobs</h1><${Awaited} value=${found} error=${error} of="both jobs" /></div>`;
  const [first, second] = found;
  const time = async () => {
    const made = await (await ask("POST", "/benchmarks", { json: { artifacts: found.map(({ job }) => job.artifact_id) } })).json();
    location.hash = `#/benchmarks/${made.id}`;
  };
  const names = Object.keys({ ...first.options, ...second.options });
  const told = (value) => (value === undefined ? "" : JSON.stringify(value));
  const figure = (name, write) => [name, ...found.map((one) => write(one))];
  const rows = [
    ...names.map((name) => [`option ${name}`, told(first.options[name]), told(second.options[name])]),
    figure("one inference", ({ job }) => html`<b>${seconds(latencyOf(job))}</b>`),
    figure("beside ONNX Runtime", ({ job }) => html`<${Speedup} compared=${job.compared} />`),
    figure("largest error", ({ job }) => (job.largest_error === null ? "" : figures(job.largest_error))),
    figure("rules that fired", ({ graph }) => graph.steps.reduce((sum, step) => sum + step.applied.length, 0)),
    figure("kernels", ({ plan }) => plan.calls.length),
    figure("plan", ({ plan }) => `${plan.scheduler}, ${plan.tasks.length} tasks`),
    figure("artifact", ({ figures: told }) => bytes(told.artifact_bytes)),
    figure("activations", ({ figures: told }) => bytes(told.arena_bytes)),
    figure("compiled in", ({ job }) => seconds(job.run_seconds)),
  ];
  const link = ({ job, name }, tab) => html`<a href="#/jobs/${job.id}${tab}">${name}</a>`;
  return html`<div>
    <h1>Two jobs</h1>
    <p class="row"><span>${link(first, "")} beside ${link(second, "")}; graphs: ${link(first, "/graph")}, ${link(second, "/graph")}</span>
      <${Act} name="Time both in turns" main=${true} act=${time} /></p>
    <${Table} columns=${["", first.name, second.name]} rows=${rows} />
    <p class="quiet">Each latency was measured by its own compilation, at its own time: timed in turns they can be told apart for certain.</p>
    <h2>Kernels</h2>
    <p class="quiet">By the operators of the model that they compute, what changed most first; times as each plan has them.</p>
    <${Table} columns=${["of the model", "kernel", "#first", "#second", "#change"]} rows=${pairs(first.plan.calls, second.plan.calls).map(shown)} /></div>`;
}

async function both(ids) {
  const [compared, ...jobs] = await Promise.all([get(`/comparison?job=${ids[0]}&job=${ids[1]}`), ...ids.map((id) => get(`/jobs/${id}`))]);
  const parts = await Promise.all(jobs.flatMap((job) => [get(`${job.links.artifact}/plan`), get(`${job.links.artifact}/graph`)]));
  return jobs.map((job, at) => {
    const { options, figures: told } = compared.jobs[Math.min(at, compared.jobs.length - 1)]; // the same one is told of once
    return { job, options, figures: told, plan: parts[2 * at], graph: parts[2 * at + 1], name: job.name || brief(job.id) };
  });
}

/** Kernels of two plans that compute the same operators; one that only one of them has stands alone. */
export function pairs(first, second) {
  const key = (call) => (call.sources.length ? [...call.sources].sort().join(", ") : call.family);
  const found = new Map();
  [first, second].forEach((calls, side) => {
    const seen = new Map();
    for (const call of calls) {
      const number = (seen.get(key(call)) || 0) + 1; // one operator may have several kernels
      seen.set(key(call), number);
      const place = `${key(call)} ${number}`;
      if (!found.has(place)) found.set(place, { sources: key(call), calls: [null, null] });
      found.get(place).calls[side] = call;
    }
  });
  const gain = ({ calls: [one, other] }) => (one ? one.predicted_s : 0) - (other ? other.predicted_s : 0);
  return [...found.values()].map((row) => ({ ...row, gain: gain(row) })).sort((a, b) => Math.abs(b.gain) - Math.abs(a.gain));
}

function shown({ sources, calls: [one, other], gain }) {
  const kernel = one && other && one.tile === other.tile ? html`<code>${one.tile}</code>`
    : html`${one ? html`<code>${one.tile}</code>` : "none"} → ${other ? html`<code>${other.tile}</code>` : "none"}`;
  return [sources, kernel, one ? seconds(one.predicted_s) : "", other ? seconds(other.predicted_s) : "",
    html`<span class=${gain > 0 ? "good" : gain < 0 ? "bad" : ""}>${gain > 0 ? "−" : gain < 0 ? "+" : ""}${gain ? seconds(Math.abs(gain)) : "same"}</span>`];
}
