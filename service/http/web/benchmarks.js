// Latency of artifacts on their devices, one or two beside each other.

import { html, useState } from "/web/vendor/htm-preact.js";
import { ask, get } from "/web/api.js";
import { Histogram, Over } from "/web/charts.js";
import { Act, Awaited, brief, Facts, Failure, figures, moment, seconds, State, Table, useFetched } from "/web/shown.js";

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
  return html`<div>
    <h1>Benchmarks</h1>
    <${Awaited} value=${page} error=${error} of="your benchmarks" />
    ${page && html`<${Table} columns=${["benchmark", "artifacts", "state", "created"]} empty="None yet: choose artifacts below."
      rows=${page.benchmarks.map((one) => [
        html`<a href="#/benchmarks/${one.id}">${brief(one.id)}</a>`,
        (one.artifacts || []).map((artifact) => artifact.slice(-6)).join(", "), html`<${State} job=${one} />`, moment(one.created_at)])} />`}
    <h2>Time artifacts</h2>
    <p class="quiet">Several are timed in rounds that take turns, so that what else the machine does touches each of them.</p>
    <${Table} columns=${["", "artifact", "model", "target", "threads", "compiled"]} empty="No artifact yet: compile a model."
      rows=${artifacts.map((job) => [
        html`<input type="checkbox" aria-label="artifact of job ${job.id}" checked=${chosen.has(job.artifact_id)} onChange=${() => toggle(job.artifact_id)} />`,
        html`<a href="#/jobs/${job.id}">${brief(job.artifact_id)}</a>`, job.name || brief(job.model),
        job.options.target, job.options.threads ?? "", moment(job.finished_at)])} />
    ${artifacts.length > 0 && html`<${Act} name="Time them" main=${true} act=${run} disabled=${!chosen.size} />`}</div>`;
}

export function Benchmark({ id }) {
  const [one, error] = useFetched(() => get(`/benchmarks/${id}?samples=true`), [id], 2);
  const artifacts = one && one.report ? one.report.artifacts.map((artifact) => artifact.artifact) : [];
  const [names] = useFetched(() => namesOf(artifacts), [String(artifacts)]);
  if (!one) return html`<h1>Benchmark</h1><${Awaited} value=${one} error=${error} of="this benchmark" />`;
  const report = one.report;
  const timed = report ? report.artifacts : [];
  const name = (artifact) => names?.get(artifact) || brief(artifact);
  return html`<div>
    <h1>Benchmark</h1>
    <div class="row"><${State} job=${one} /> ${one.verdict && html`<strong>${one.verdict}</strong>`}</div>
    ${one.problem && html`<${Failure} error=${one.problem} />`}
    ${report && report.notices.map((notice) => html`<p class="quiet">${notice}</p>`)}
    ${report && report.comparisons.length > 0 && html`<${Pairs} pairs=${report.comparisons} name=${name} />`}
    ${timed.map((artifact) => html`
      <h2>${name(artifact.artifact)}</h2>
      <${Facts} facts=${[
        ["median", seconds(artifact.median_s)], ["10 of 100 are below", seconds(artifact.p10_s)],
        ["90 of 100 are below", seconds(artifact.p90_s)], ["99 of 100 are below", seconds(artifact.p99_s)],
        ["inferences a second", figures(1 / artifact.median_s)], ["first run", seconds(artifact.first_run_s)],
        ["load", seconds(artifact.load.first_s)], ["runs", figures(artifact.runs)],
      ]} />
      ${artifact.samples_s && artifact.samples_s.length > 1 && html`<${Histogram} samples=${artifact.samples_s} median=${artifact.median_s} />`}
      ${artifact.stream && html`<${Streamed} stream=${artifact.stream} />`}`)}
    ${timed.some((artifact) => artifact.kernels.length > 0) && html`<h2>Kernels</h2><${Kernels} timed=${timed} name=${name} />`}</div>`;
}

/** What artifacts are called: the model's name and the options in which their jobs differ. */
async function namesOf(artifacts) {
  const receipts = await Promise.all(artifacts.map((one) => get(`/artifacts/${one}/receipt`)));
  if (!receipts.length) return new Map();
  const { jobs } = await get(`/comparison?${receipts.map((one) => `job=${one.job}`).join("&")}`);
  return new Map(jobs.map((job, at) => [artifacts[at], [job.name || brief(artifacts[at]), optionsOf(job)].filter(Boolean).join(", ")]));
}

/** The options of a compared job that the others have otherwise. */
const optionsOf = (job) => Object.entries(job.options).map(([key, value]) => `${key} ${JSON.stringify(value)}`).join(", ");

/** Many inferences in flight on several devices: how often one ends, and what each device has to do. */
function Streamed({ stream }) {
  const percent = (share) => `${figures(100 * share)} %`;
  const own = (at) => stream.parts.filter((part) => part.device === at);
  return html`<div>
    <h3>Many inferences in flight</h3>
    <${Facts} facts=${[
      ["inferences a second", figures(stream.per_second)], ["one ends every", seconds(stream.period_s)],
      ["predicted", stream.estimated || seconds(stream.predicted_period_s)], ["devices are idle", percent(stream.bubble)],
    ]} />
    <${Table} columns=${["device", "target", "#busy", "#kernels", "#of a frame", "#of the frames"]} rows=${stream.devices.map((device, at) => [
      device.name, device.target, percent(device.busy), own(at).map((part) => part.kernels).join(" + ") || "0",
      own(at).map((part) => seconds(part.seconds)).join(" + ") || "", own(at).map((part) => percent(part.share)).join(" + ") || ""])} /></div>`;
}

/** Which of two is faster, with the interval in which the ratio of their times lies. */
function Pairs({ pairs, name }) {
  return html`<${Table} columns=${["first", "second", "#first / second", "#95% from", "#to", "verdict"]} rows=${pairs.map((pair) => [
    name(pair.a), name(pair.b), figures(pair.ratio), figures(pair.low), figures(pair.high),
    html`<strong class=${pair.faster ? "good" : ""}>${pair.verdict}</strong>`])} />`;
}

/** Kernels of artifacts that do the same, by family and by which of that family it is: [family, number, seconds of each]. */
function matched(timed) {
  const rows = new Map();
  timed.forEach((artifact, at) => {
    const seen = new Map();
    for (const kernel of artifact.kernels) {
      const number = (seen.get(kernel.family) || 0) + 1;
      seen.set(kernel.family, number);
      const place = `${kernel.family} ${number}`;
      if (!rows.has(place)) rows.set(place, { family: kernel.family, number, seconds: timed.map(() => null) });
      rows.get(place).seconds[at] = kernel.seconds;
    }
  });
  return [...rows.values()];
}

/**
 * Time of each kernel. Of two artifacts those that do the same stand side by side, what changed most first: what one has
 * and the other has not (because it was fused otherwise) counts whole, so that the differences add up to the whole one.
 */
function Kernels({ timed, name }) {
  const two = timed.length === 2;
  const gain = ({ seconds: [first, second] }) => (first || 0) - (second || 0);
  const rows = matched(timed).sort(two ? (a, b) => Math.abs(gain(b)) - Math.abs(gain(a))
    : (a, b) => Math.max(...b.seconds.map(Number)) - Math.max(...a.seconds.map(Number)));
  const sums = timed.map((_, at) => rows.reduce((sum, row) => sum + (row.seconds[at] || 0), 0));
  const change = (value, whole) => html`<span class=${value > 0 ? "good" : value < 0 ? "bad" : ""}>
    ${value > 0 ? "−" : value < 0 ? "+" : ""}${seconds(Math.abs(value))}${whole ? ` (${figures((100 * value) / whole)} %)` : ""}</span>`;
  const cells = (title, times) => [title, ...times.map((one) => (one === null ? "not there" : seconds(one))),
    ...(two ? [change((times[0] || 0) - (times[1] || 0), sums[0]), times[0] && times[1] ? figures(times[1] / times[0]) : ""] : [])];
  return html`<div>
    ${two && html`<p class="quiet">What got faster or slower from the first to the second artifact, the largest change first; in brackets
      the part of the first one's kernels that it saves.</p>`}
    <${Table} columns=${["kernel", ...timed.map((artifact) => `#${name(artifact.artifact)}`), ...(two ? ["#change", "#second / first"] : [])]}
      rows=${[...rows.map((row) => cells(`${row.family}${row.number > 1 ? ` (${row.number}.)` : ""}`, row.seconds)),
        cells(html`<strong>all kernels</strong>`, sums)]} /></div>`;
}

const MOST_COMPARED = 50; // no more are compared at once

/** What was made of one model over time: each artifact's latency as its own compilation measured it, with version and options. */
export function History({ model, not }) {
  const [found, error] = useFetched(async () => {
    const jobs = (await get(`/jobs?kind=compile&state=SUCCEEDED&model=${model}&limit=${MOST_COMPARED}`)).jobs;
    const compared = await get(`/comparison?${jobs.map((job) => `job=${job.id}`).join("&")}`);
    return jobs.map((job, at) => ({ ...compared.jobs[at], job }));
  }, [model]);
  if (!found) return html`<${Failure} error=${error} />`;
  const times = [...found].reverse().filter((one) => one.figures.latency_s);
  return html`<div>
    ${times.length > 1 && html`<${Over} points=${times.map((one) => [Date.parse(one.job.finished_at) / 1000, one.figures.latency_s,
      `${moment(one.job.finished_at)}: ${seconds(one.figures.latency_s)}, ${JSON.stringify(one.options)}`])} />`}
    <${Table} columns=${["job", "finished", "compiler", "differs in", "#latency", "#benchmarked", "#measured tiles", ""]} rows=${found.map((one) => [
      one.job.id === not ? "this one" : html`<a href="#/jobs/${one.job.id}">${one.name || brief(one.job.id)}</a>`,
      moment(one.job.finished_at), one.compiler || "", optionsOf(one),
      seconds(one.figures.latency_s), one.benchmarks.length ? seconds(one.benchmarks[0].median_s) : "", one.figures.records_measured ?? "",
      one.job.id === not ? "" : html`<a href="#/beside/${one.job.id}/${not}">beside this one</a>`])} /></div>`;
}
