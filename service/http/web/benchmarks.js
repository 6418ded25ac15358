// Latency of artifacts on their devices, one or two beside each other.

import { html, useState } from "/web/vendor/htm-preact.js";
import { ask, get } from "/web/api.js";
import { Histogram } from "/web/charts.js";
import { Act, brief, Facts, Failure, figures, moment, seconds, State, Table, useFetched } from "/web/shown.js";

export function Benchmarks() {
  const [page, error] = useFetched(() => get("/benchmarks?limit=50"), [], 3);
  const [jobs] = useFetched(() => get("/jobs?state=SUCCEEDED&kind=compile&limit=100"), []);
  const [chosen, choose] = useState(new Set());
  const toggle = (id) => choose((now) => { const next = new Set(now); next.has(id) ? next.delete(id) : next.add(id); return next; });
  const run = async () => {
    const made = await (await ask("POST", "/benchmarks", { json: { artifacts: [...chosen] } })).json();
    location.hash = `#/benchmarks/${made.id}`;
  };
  const artifacts = jobs ? [...new Map(jobs.jobs.map((job) => [job.artifact_id, job])).values()] : [];
  return html`
    <h1>Benchmarks</h1>
    <${Failure} error=${error} />
    ${page && html`<${Table} columns=${["benchmark", "artifacts", "state", "created"]} empty="None yet: choose artifacts below."
      rows=${page.benchmarks.map((one) => [
        html`<a href="#/benchmarks/${one.id}">${brief(one.id)}</a>`,
        (one.artifacts || []).map((artifact) => artifact.slice(-6)).join(", "), html`<${State} job=${one} />`, moment(one.created_at)])} />`}
    <h2>Time artifacts</h2>
    <p class="quiet">Several are timed in rounds that take turns, so that what else the machine does touches each of them.</p>
    <${Table} columns=${["", "artifact", "target", "threads", "compiled"]} empty="No artifact yet: compile a model."
      rows=${artifacts.map((job) => [
        html`<input type="checkbox" aria-label="artifact of job ${job.id}" checked=${chosen.has(job.artifact_id)} onChange=${() => toggle(job.artifact_id)} />`,
        html`<a href="#/jobs/${job.id}">${brief(job.artifact_id)}</a>`,
        job.options.target, job.options.threads ?? "", moment(job.finished_at)])} />
    ${artifacts.length > 0 && html`<${Act} name="Time them" main=${true} act=${run} disabled=${!chosen.size} />`}`;
}

export function Benchmark({ id }) {
  const [one, error] = useFetched(() => get(`/benchmarks/${id}?samples=true`), [id], 2);
  if (!one) return html`<h1>Benchmark</h1><${Failure} error=${error} />`;
  const report = one.report;
  const timed = report ? report.artifacts : [];
  return html`
    <h1>Benchmark</h1>
    <div class="row"><${State} job=${one} /> ${one.verdict && html`<strong>${one.verdict}</strong>`}</div>
    ${one.problem && html`<${Failure} error=${one.problem} />`}
    ${report && report.notices.map((notice) => html`<p class="quiet">${notice}</p>`)}
    ${report && report.comparisons.map((pair) => html`<pre>${JSON.stringify(pair, null, 2)}</pre>`)}
    ${timed.map((artifact) => html`
      <h2>Artifact ${name(artifact)}</h2>
      <${Facts} facts=${[
        ["median", seconds(artifact.median_s)], ["10 of 100 are below", seconds(artifact.p10_s)],
        ["90 of 100 are below", seconds(artifact.p90_s)], ["99 of 100 are below", seconds(artifact.p99_s)],
        ["inferences a second", figures(1 / artifact.median_s)], ["first run", seconds(artifact.first_run_s)],
        ["load", seconds(artifact.load.first_s)], ["runs", figures(artifact.runs)],
      ]} />
      ${artifact.samples_s && artifact.samples_s.length > 1 && html`<${Histogram} samples=${artifact.samples_s} median=${artifact.median_s} />`}`)}
    ${timed.some((artifact) => artifact.kernels.length > 0) && html`<h2>Kernels</h2><${Kernels} timed=${timed} />`}`;
}

const name = (artifact) => brief(artifact.artifact);

/** Time of each kernel; of two artifacts those that do the same stand side by side. */
function Kernels({ timed }) {
  const rows = new Map();
  timed.forEach((artifact, at) => {
    const seen = new Map();
    for (const kernel of artifact.kernels) {
      const number = (seen.get(kernel.family) || 0) + 1;
      seen.set(kernel.family, number);
      const place = `${kernel.family} ${number}`;
      if (!rows.has(place)) rows.set(place, { family: kernel.family, number, seconds: [] });
      rows.get(place).seconds[at] = kernel.seconds;
    }
  });
  const sorted = [...rows.values()].sort((a, b) => Math.max(...b.seconds.filter(Boolean)) - Math.max(...a.seconds.filter(Boolean)));
  const two = timed.length === 2;
  return html`<${Table} columns=${["kernel", ...timed.map((artifact) => `#${name(artifact)}`), ...(two ? ["#second / first"] : [])]}
    rows=${sorted.map((row) => [
      `${row.family}${row.number > 1 ? ` (${row.number}.)` : ""}`, ...timed.map((_, at) => seconds(row.seconds[at])),
      ...(two ? [row.seconds[0] && row.seconds[1] ? figures(row.seconds[1] / row.seconds[0]) : ""] : [])])} />`;
}
