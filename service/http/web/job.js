// One job: what it does now and, once it has ended, what became of the model.

import { html, useEffect, useState } from "/web/vendor/htm-preact.js";
import { History } from "/web/benchmarks.js";
import { ask, download, follow, get, getText, openDocument } from "/web/api.js";
import { Phases, Roofline } from "/web/charts.js";
import { Graph, Uploaded } from "/web/graph.js";
import { Labels } from "/web/labels.js";
import { Log } from "/web/log.js";
import { Progress, Ways } from "/web/jobs.js";
import { Compared, latencyOf, OtherTimes } from "/web/result.js";
import { Schedules } from "/web/schedules.js";
import { Share } from "/web/share.js";
import { Tuning } from "/web/tuning.js";
import { Why } from "/web/why.js";
import { Act, Awaited, Facts, Failure, State, Table, bytes, colour, figures, moment, nodesOf, seconds, useFetched, useTitle } from "/web/shown.js";

const ENDED = ["SUCCEEDED", "FAILED", "CANCELLED"];
const ALWAYS = ["overview", "tuning", "log"];
const FINAL = [400, 401, 403, 404];
const OF_A_MODEL = ["graph"]; // as it was uploaded, where there is no artifact
const TABS = [["overview", "Overview"], ["schedule", "Schedule"], ["graph", "Graph"], ["kernels", "Kernels"], ["tuning", "Tuning"], ["source", "Source"], ["history", "History"], ["log", "Log"]];

/** A job, with the operator `node` of its graph in sight; `base` is where its parts are, `link` says what a share link opens, when one is looked through. */
export function Job({ id, tab, node = "", base = `#/jobs/${id}`, link = null }) {
  const [job, error, again] = useFetched(() => get(`/jobs/${id}`), [id]);
  const [events, setEvents] = useState([]);
  const [sharing, share] = useState(false);
  useEffect(() => {
    const stop = new AbortController();
    const seen = [];
    let due = 0; // many events come at once when a job is opened late: it is fetched once after them
    const soon = () => { due = due || setTimeout(() => { due = 0; again(); }, 200); };
    const listen = async () => {
      try {
        await follow(`/jobs/${id}/events`, seen.length ? seen[seen.length - 1].seq : 0, (event) => {
          seen.push(event);
          setEvents([...seen]);
          soon();
        }, stop.signal);
        soon();
      } catch (problem) {
        const final = FINAL.includes(problem.status); // there is no such job, or it is not for this key
        if (!stop.signal.aborted && !final) setTimeout(listen, 2000);
      }
    };
    listen();
    return () => { stop.abort(); clearTimeout(due); };
  }, [id]);
  useTitle(job ? tabOf(job) : "Job");
  if (!job) return html`<h1>Job</h1><${Awaited} value=${job} error=${error} of="this job" />`;
  const made = job.state === "SUCCEEDED" && job.kind === "compile";
  const opened = ([name]) => !link || (name !== "history" && (link.download || name !== "source"));
  const tabs = TABS.filter(([name]) => made || ALWAYS.includes(name) || (job.model && OF_A_MODEL.includes(name))).filter(opened);
  const shown = tabs.some(([name]) => name === tab) ? tab : "overview";
  return html`<div>
    <h1>${job.name || titleOf(job)} ${job.name && html`<span class="quiet">${titleOf(job)}</span>`}</h1>
    <div class="row"><${State} job=${job} /> <${Progress} job=${job} /> ${!link && html`<${Ways} job=${job} again=${again} />`}
      ${made && (!link || link.download) && html`
        <${Act} name="Download" main=${true} act=${() => download(job.links.artifact, `${job.artifact_id}.tw`)} />`}
      ${made && html`<${Act} name="Report" act=${() => openDocument(`${job.links.artifact}/report.html`)} />`}
      ${made && !link && html`
        <${Act} name="Receipt" act=${() => download(job.links.receipt, `${job.artifact_id}.json`)} />
        <${Act} name="Benchmark" act=${async () => {
          const made = await (await ask("POST", "/benchmarks", { json: { artifacts: [job.artifact_id] } })).json();
          location.hash = `#/benchmarks/${made.id}`;
        }} />`}
      ${!link && ENDED.includes(job.state) && job.kind === "compile" && html`<${Act} name="Compile again" act=${async () => {
        const made = await (await ask("POST", `/jobs/${id}/clone`, { json: {} })).json();
        location.hash = `#/jobs/${made.id}`;
      }} /> <a href="#/compile?job=${id}">Compile with changes</a>`}
      ${!link && html`<button type="button" aria-expanded=${sharing} onClick=${() => share(!sharing)}>Share</button>`}
    </div>
    <${Labels} what="job" path=${`/jobs/${id}`} one=${job} again=${again} fixed=${Boolean(link)} />
    ${sharing && !link && html`<${Share} id=${id} />`}
    <${Failure} error=${error} />
    ${job.problem && html`<${Failure} error=${job.problem} at=${job.model && ((one) => `${base}/graph?node=${encodeURIComponent(one)}`)} />`}
    <nav class="tabs" aria-label="Parts of this job">${tabs.map(([name, title]) => html`
      <a href="${base}/${name}" aria-current=${shown === name ? "page" : null}>${title}</a>`)}</nav>
    <${Tab} name=${shown} job=${job} events=${events} link=${link} base=${base} node=${node} /></div>`;
}

/** What the tab is called: the model, and how far it is or what came of it. */
function tabOf(job) {
  const name = job.name || titleOf(job);
  if (job.state === "RUNNING") return `${Math.round(100 * job.fraction)} % ${name}`;
  const latency = job.state === "SUCCEEDED" && latencyOf(job);
  return latency ? `${name}: ${seconds(latency)}` : `${name}: ${job.state.toLowerCase()}`;
}

const titleOf = (job) => `${job.kind} for ${job.options.target || (job.model ? "a model" : "an artifact")}`;

function Tab({ name, job, events, link, base, node }) {
  switch (name) {
    case "schedule": return html`<${Schedules} job=${job} />`;
    case "graph": return job.state === "SUCCEEDED" && job.kind === "compile" ? html`<${Steps} job=${job} link=${link} />`
      : html`<${Uploaded} path=${`/jobs/${job.id}/graph`} blamed=${nodesOf(job.problem)} node=${node} />`;
    case "kernels": return html`<${OfPlan} job=${job} view=${Kernels} />`;
    case "tuning": return html`<${Tuning} job=${job} base=${base} reports=${events.filter((event) => event.kind === "tuning").length} />`;
    case "history": return html`<${History} model=${job.model} not=${job.id} />`;
    case "source": return html`<${Source} job=${job} />`;
    case "log": return html`<${Log} job=${job} ended=${ENDED.includes(job.state)} />`;
    default: return html`<${Overview} job=${job} events=${events} link=${link} base=${base} />`;
  }
}

function Overview({ job, events, link, base }) {
  const ended = ENDED.includes(job.state);
  const [fetched] = useFetched(() => (ended ? get(`/jobs/${job.id}/report`) : null), [job.id, ended]);
  const report = fetched && fetched.report;
  const notices = events.filter((event) => event.kind === "notice");
  return html`<div>
    ${report && html`
      <${Compared} compared=${report.compared} />
      ${report.target.startsWith("wasm:") && html`<${InBrowser} artifact=${job.links.artifact} />`}
      <${Facts} facts=${[
        ["one inference", html`<b>${latencyOf(report) ? seconds(latencyOf(report)) + (report.placement ? ", estimated" : "") : "not measured"}</b>`, "first"],
        ...(report.placement && report.placement.pipeline && report.placement.pipeline.period_s
          ? [["with many in flight, estimated", `one every ${seconds(report.placement.pipeline.period_s)}`]] : []),
        ["target", report.target],
        ["lanes", report.threads],
        ["kernels", `${report.kernels} of ${report.nodes} operators`],
        ["artifact", bytes(report.artifact_bytes)],
        ["weights", bytes(report.weight_bytes)],
        ["activations", bytes(report.arena_bytes)],
        ["measurements", `${report.records_measured} made, ${report.records_reused} reused`],
      ]} />
      <${OtherTimes} report=${report} />
      <h2>Proof</h2>
      <p class="quiet">Each output against float64 on the model as it was ${report.quantised ? "quantised" : "sent"}; its largest error may be
        ${" "}${figures(report.tolerance)} of its largest value.</p>
      <${Table} columns=${["output", "#largest error", "#of the largest value", "of the tolerance", "#on random inputs, float32 itself"]} rows=${report.errors.map((one) => [
        html`<code>${one.output}</code>`, figures(one.max_absolute), figures(one.max_relative),
        report.tolerance ? html`<progress value=${one.max_relative / report.tolerance} aria-label="of the tolerance"></progress> ${figures(100 * one.max_relative / report.tolerance)} %` : "exact",
        (report.beside_float32 || []).filter((of) => of.output === one.output).map((of) => `${figures(of.artifact)}, ${figures(of.float32)}${of.decisions ? `; ${of.differing} of ${of.decisions} decisions differ` : ""}`).join(""),
      ])} />
      ${report.cases && html`<${Shown} report=${report} />`}
      ${job.kind === "compile" && html`<${Why} job=${job} report=${report} base=${base} />`}
      ${report.quantised && html`<${Quantised} report=${report.quantised} />`}`}
    <h2>Steps</h2>
    <${Phases} events=${events} ended=${ended} />
    ${notices.map((event) => html`<p class="quiet">${event.message}</p>`)}
    <${Facts} facts=${[
      ["created", moment(job.created_at)], ["waited", seconds(job.queue_seconds)], ["took", seconds(job.run_seconds)],
      ["attempt", job.attempt], ["model", job.model && html`<code>${job.model.slice(0, 16)}…</code>`],
    ]} />
    ${job.model && !link && html`<${Model} digest=${job.model} />`}
    <details><summary>Options</summary><pre tabindex="0">${JSON.stringify(job.options, null, 2)}</pre></details></div>`;
}

/** What quantising the model cost against the one that was sent, and what became of each layer. */
// An artifact for browsers runs where the page is looked at.
function InBrowser({ artifact }) {
  const [said, say] = useState("The artifact is fetched, and runs on this machine. No worker can time it.");
  const run = async () => say(await (await import("/web/in_browser.js")).timedHere(artifact));
  return html`<section class="box result"><${Act} name="Run in this browser" main=${true} act=${run} /><p role="status">${said}</p></section>`;
}

// Which inputs showed what; an artifact that nothing shows is said so first.
function Shown({ report }) {
  const whole = report.cases.filter((one) => !one.why_not);
  const partly = report.cases.filter((one) => one.why_not);
  return html`<div>
    ${report.verified === false && html`<p><b>Not verified${report.unshown.length ? `: nothing shows ${report.unshown.join(", ")}` : ""}.</b></p>`}
    <p class="quiet">Judged on ${whole.length} of ${report.cases.length} sets of inputs${whole.length ? `: ${whole.map((one) => one.inputs).join(", ")}` : ""}.</p>
    ${partly.map((one) => html`<p class="quiet">Undecided, ${one.inputs}: ${one.why_not}${one.decided.length ? `; it shows ${one.decided.join(", ")}` : ""}.</p>`)}</div>`;
}

function Quantised({ report }) {
  const decibels = (db) => (db === null ? "" : figures(db));
  return html`<h2>int8</h2>
    <p class="quiet">Quantised on ${figures(report.count)} samples; each output against the model as it was sent.</p>
    <${Table} columns=${["output", "#signal to noise, dB", "#of the largest value"]} rows=${report.outputs.map((one) => [
      html`<code>${one.name}</code>`, one.snr_db === null ? "no difference" : figures(one.snr_db), one.max_relative === null ? "not finite" : figures(one.max_relative),
    ])} />
    <${Table} columns=${["layer", "operator", "precision", "#weights, dB", "#alone, dB", "why not int8"]} rows=${report.layers.map((one) => [
      html`<code>${one.node}</code>`, one.operator, one.precision, decibels(one.weights_db), decibels(one.outputs_db), one.reason || "",
    ])} />`;
}

/** What the model of a job is called, for all its jobs. */
function Model({ digest }) {
  const [model, error, again] = useFetched(() => get(`/models/${digest}`), [digest]);
  return html`<h2>Model</h2><${Failure} error=${error} />
    ${model && html`<p class="quiet">${bytes(model.bytes)}; ${model.jobs} of your jobs compile it.</p>
      <${Labels} what="model" path=${`/models/${digest}`} one=${model} again=${again} />`}`;
}

function OfPlan({ job, view }) {
  const [plan, error] = useFetched(() => get(`${job.links.artifact}/plan`), [job.id]);
  return plan ? html`<${view} plan=${plan} />` : html`<${Awaited} value=${plan} error=${error} of="the plan" />`;
}

function Steps({ job, link }) {
  const [both, error] = useFetched(() => Promise.all([get(`${job.links.artifact}/graph`), get(`${job.links.artifact}/plan`)]), [job.id]);
  if (!both) return html`<${Awaited} value=${both} error=${error} of="the graph" />`;
  return html`<${Graph} graph=${both[0]} plan=${both[1]} job=${job} link=${link} />`;
}

function Kernels({ plan }) {
  const total = plan.calls.reduce((sum, call) => sum + call.predicted_s, 0) || 1;
  const order = plan.calls.map((call, number) => [call, number]).sort(([a], [b]) => b.predicted_s - a.predicted_s);
  const moved = (call) => [...call.reads, ...call.writes].reduce((sum, buffer) => sum + (plan.storages[buffer] || { bytes: 0 }).bytes, 0);
  const points = plan.calls.filter((call) => call.flops && moved(call)).map((call) => ({
    intensity: call.flops / moved(call), rate: call.flops / call.predicted_s, part: call.predicted_s / total, call,
  }));
  const above = plan.ceilings ? points.filter(({ rate }) => rate > plan.ceilings.flop_per_s) : [];
  return html`<div>
    ${points.length > 0 && html`<${Roofline} points=${points} ceilings=${plan.ceilings} />`}
    ${plan.ceilings && above.length > 0 && html`<p class="quiet">${above.length} kernel${above.length > 1 ? "s lie" : " lies"} above the roof${plan.ceilings.measured ? "" : ", which is the profile's and was not measured here"}:
      operations are counted as the model has them${above.some(({ call }) => call.blocking?.algorithm === "winograd") ? ", and Winograd's convolutions carry out fewer" : ""}.</p>`}
    <p class="quiet">${plan.calls.length} kernels, slowest first; times are ${plan.calls.every((call) => call.predicted_from === "model")
    ? "the cost model's" : "measured where a measurement was made, else the cost model's"}.</p>
    <${Table} columns=${["#", "kernel", "of the model", "tile", "#time", "#part", "#GFLOP/s", "time from"]} rows=${order.map(([call, number]) => [
      number, html`<span class="id"><span style=${{ color: colour(call.family) }} aria-hidden="true">■</span> ${call.family}</span>`, call.sources.join(", "),
      html`<code>${call.tile}</code>`, seconds(call.predicted_s), `${figures(100 * call.predicted_s / total)} %`,
      call.flops ? figures(call.flops / call.predicted_s / 1e9) : "", call.predicted_from,
    ])} /></div>`;
}

function Source({ job }) {
  const [files, error] = useFetched(() => get(`${job.links.artifact}/files`), [job.id]);
  const names = files ? files.files.map((file) => file.name).filter((name) => name.startsWith("source/")) : [];
  const [chosen, choose] = useState("");
  const name = chosen || names.find((one) => one.includes("kernels") && !one.endsWith(".h")) || names[0];
  const [text, failed] = useFetched(() => (name ? getText(`${job.links.artifact}/${name}`) : ""), [name]);
  return html`<${Awaited} value=${text} error=${error || failed} of="the sources" />
    <div class="row"><label class="field">File
      <select value=${name} onChange=${(event) => choose(event.target.value)}>
        ${names.map((one) => html`<option value=${one} selected=${one === name}>${one.slice("source/".length)}</option>`)}
      </select></label></div>
    <pre tabindex="0">${text}</pre>`;
}
