// The model's graph as it was uploaded, after each step, and as kernels: what became of each operator, and what is wrong.

import { html, useEffect, useMemo, useRef, useState } from "/web/vendor/htm-preact.js";
import { get } from "/web/api.js";
import { Canvas } from "/web/canvas.js";
import { Code, Measured } from "/web/kernel.js";
import { Facts, Failure, figures, seconds, Table, useFetched } from "/web/shown.js";

const BOX_W = 168;
const BOX_H = 40;
const MOST_FOUND = 12;
const NAMES = { uploaded: "as uploaded", load: "as loaded", rewrite: "rewritten", choose: "with choices", kernels: "kernels" };
const BLAMED = "#b3261e";
const KINDS = { bad: "gone after it", warn: "changed after it", good: "new in it" };

/** One colour for all operators of a kernel; neighbours in the plan differ much. */
const ofKernel = (number) => (number === undefined ? "#8a929c" : `hsl(${(137.5 * number) % 360} 50% 44%)`);
const short = (text) => (text.length > 24 ? `${text.slice(0, 23)}…` : text);

/** Layers by longest path; within a layer in the order of the mean place of what is read (Sugiyama's barycentres). */
export function laidOut(items) {
  const writer = new Map();
  items.forEach((item, at) => item.writes.forEach((value) => writer.set(value, at)));
  const edges = [];
  const level = [];
  items.forEach((item, at) => {
    level[at] = 0;
    for (const value of new Set(item.reads)) {
      const from = writer.get(value);
      if (from === undefined || from >= at) continue;
      edges.push([from, at]);
      level[at] = Math.max(level[at], level[from] + 1);
    }
  });
  const layers = [];
  level.forEach((one, at) => (layers[one] = layers[one] || []).push(at));
  const reads = items.map(() => []);
  for (const [from, to] of edges) reads[to].push(from);
  const column = [];
  for (const layer of layers) {
    const wish = (at) => (reads[at].length ? reads[at].reduce((sum, from) => sum + column[from], 0) / reads[at].length : 0);
    const wishes = new Map(layer.map((at) => [at, wish(at)]));
    layer.sort((a, b) => wishes.get(a) - wishes.get(b) || a - b);
    let next = -Infinity;
    for (const at of layer) {
      column[at] = Math.max(next, wishes.get(at));
      next = column[at] + 1;
    }
    const off = layer.reduce((sum, at) => sum + column[at] - wishes.get(at), 0) / layer.length;
    for (const at of layer) column[at] -= off; // so that each layer stands below what it reads
  }
  const least = column.reduce((low, one) => Math.min(low, one), 0);
  const places = items.map((_, at) => ({ x: 10 + (column[at] - least) * (BOX_W + 24), y: 10 + level[at] * (BOX_H + 44) }));
  const width = places.reduce((most, place) => Math.max(most, place.x), 0) + BOX_W + 10;
  return { places, edges, width, height: layers.length * (BOX_H + 44) + 10 };
}

function sceneOf(items) {
  const { places, edges, width, height } = laidOut(items);
  const boxes = items.map((item, at) => ({ ...places[at], w: BOX_W, h: BOX_H, fill: item.reasons?.length ? BLAMED : ofKernel(item.kernel), title: item.title, text: [short(item.name), short(item.below)], edge: item.edge }));
  const lines = edges.map(([from, to]) => ({
    from: [places[from].x + BOX_W / 2, places[from].y + BOX_H], to: [places[to].x + BOX_W / 2, places[to].y], boxes: [from, to], curved: true,
  }));
  return { width, height, boxes, lines };
}

/** All that can be shown: for each step its items, operators or kernels. */
function stepsOf(graph, plan) {
  const last = graph.steps[graph.steps.length - 1];
  const kernelOf = new Map(); // of a value, the kernel that computes the operator that writes it
  graph.kernels.forEach((members, kernel) => members.forEach((number) => last.nodes[number].writes.forEach((value) => kernelOf.set(value, kernel))));
  const written = graph.steps.map((step) => new Map(step.nodes.flatMap((node) => node.writes.map((value) => [value, node]))));
  const same = (a, b) => a.op === b.op && String(a.reads) === String(b.reads);
  const steps = graph.steps.map((step, at) => {
    const [before, after] = [written[at - 1], written[at + 1]];
    const items = step.nodes.map((node) => {
      const kernel = node.writes.map((value) => kernelOf.get(value)).find((one) => one !== undefined);
      const edgeOf = (other, missing) => {
        const twin = other && other.get(node.writes[0]);
        return !other ? undefined : !twin ? missing : same(node, twin) ? undefined : "warn";
      };
      const kind = graph.values[node.writes[0]]?.type || "";
      return {
        node, kernel, reads: node.reads.filter((value) => value !== null), writes: node.writes,
        name: node.op, below: node.name || kind, title: `${node.op} ${node.name || ""}: ${kind}`,
        edge: edgeOf(after, "bad") || edgeOf(before, "good"),
      };
    });
    return { name: step.name, items, applied: step.applied };
  });
  const kernels = plan.calls.map((call, kernel) => ({
    call, kernel, reads: call.reads, writes: call.writes, name: call.family, below: seconds(call.predicted_s),
    title: `${call.family}: ${call.sources.join(", ")}`,
  }));
  return [...steps, { name: "kernels", items: kernels, applied: [] }];
}

/** The file's operators, each with what `blamed` says of it and in the colour of the kernel that computes what it writes. */
function uploadedStep(uploaded, graph, steps, blamed) {
  const kernelOf = new Map(steps.flatMap((step) => step.items.flatMap((item) => (item.node ? item.writes.map((value) => [graph.values[value]?.name, item.kernel]) : []))));
  const items = uploaded.steps[0].nodes.map((node) => {
    const kinds = node.writes.map((value) => uploaded.values[value] || {});
    return {
      node, reads: node.reads.filter((value) => value !== null), writes: node.writes,
      kernel: kinds.map((value) => kernelOf.get(value.name)).find((one) => one !== undefined),
      name: node.op, below: node.name, title: `${node.op} ${node.name}: ${kinds[0]?.type || "type not declared"}`, reasons: [],
    };
  });
  for (const one of blamed) {
    for (const at of placesOf(items, one.node)) items[at].reasons.push(one);
  }
  return { name: "uploaded", items, applied: [], values: uploaded.values };
}

/** Where a node of this name is: itself, else the call of the function, or the operator with the subgraph, that holds it. */
function placesOf(items, name) {
  const those = (fits) => items.flatMap(({ node }, at) => (fits(node) ? [at] : []));
  const exact = those((node) => node.name === name);
  return exact.length ? exact : those((node) => name.startsWith(`${node.name}/`) || (node.inside || []).includes(name));
}

/** The graph of a model that was not compiled, or not yet, with the nodes that a problem blames; `node` is brought into sight. */
export function Uploaded({ path, blamed = [], node = "" }) {
  const [uploaded, error] = useFetched(() => get(path), [path]);
  if (error) return html`<${Failure} error=${error} />`;
  return uploaded ? html`<${Graph} uploaded=${uploaded} blamed=${blamed} wanted=${node || blamed[0]?.node || ""} />` : html`<p class="quiet">The model is read…</p>`;
}

/**
 * The steps side by side; what is chosen in one is shown in the other. Without `graph`, that of an artifact, there is only
 * the model as it was `uploaded`; with it that is asked for when it is wanted.
 */
export function Graph({ graph = null, plan = null, uploaded = null, blamed = [], wanted: sought = "", job = null, link = null }) {
  const [asked, ask] = useState(false);
  const [fetched, error] = useFetched(() => (asked ? get(`/jobs/${job.id}/graph`) : null), [asked]);
  const file = uploaded || fetched;
  const steps = useMemo(() => {
    const made = graph ? stepsOf(graph, plan) : [];
    return [file ? uploadedStep(file, graph, made, blamed) : { name: "uploaded", items: [], applied: [] }, ...made];
  }, [graph, plan, file, JSON.stringify(blamed)]);
  const [shown, show] = useState([steps.length - 1]);
  const [chosen, choose] = useState(null); // {step, item}
  const [wanted, want] = useState("");
  const scenes = useMemo(() => steps.map((step) => sceneOf(step.items)), [steps]);
  const drawing = useRef(null);
  useEffect(() => {
    const lookFor = (name) => {
      const [item] = name ? placesOf(steps[0].items, name) : [];
      if (item !== undefined) choose({ step: 0, item });
    };
    const onNode = ({ detail }) => { lookFor(detail); drawing.current?.scrollIntoView({ block: "nearest" }); };
    lookFor(sought);
    addEventListener("node", onNode);
    return () => removeEventListener("node", onNode);
  }, [sought]);
  const toggle = (at) => show(shown.includes(at) ? (shown.length > 1 ? shown.filter((one) => one !== at) : shown) : [...shown.slice(-1), at].sort());
  const press = (at) => { if (!steps[at].items.length) ask(true); toggle(at); };
  const item = chosen && steps[chosen.step].items[chosen.item];
  const found = wanted.length < 2 ? [] : shown.flatMap((at) => steps[at].items
    .map((one, number) => ({ step: at, item: number, text: `${one.name} ${one.node?.name || ""} ${(one.call?.sources || []).join(" ")}` }))
    .filter((one) => one.text.toLowerCase().includes(wanted.toLowerCase())));
  const lit = (at) => {
    if (found.length) return new Set(found.filter((one) => one.step === at).map((one) => one.item));
    if (!item || item.kernel === undefined) return null;
    return new Set(steps[at].items.flatMap((one, number) => (one.kernel === item.kernel ? [number] : [])));
  };
  return html`<div>
    <${Failure} error=${error} />
    <div class="row" role="group" aria-label="Steps to show">
      ${graph && steps.map((step, at) => html`<button type="button" aria-pressed=${shown.includes(at)} class=${shown.includes(at) ? "main" : ""}
        onClick=${() => press(at)}>${NAMES[step.name] || step.name}${step.items.length ? ` (${step.items.length})` : ""}</button>`)}
      <label class="field">Find an operator or a name
        <input type="search" value=${wanted} onInput=${(event) => want(event.target.value)} /></label>
    </div>
    ${graph ? html`<p class="quiet">Two steps can stand side by side. Operators of one kernel have one colour; grey ones need no code: views, or known when compiling.
      ${" "}Outlined in each step: ${Object.entries(KINDS).map(([kind, words]) => html`<span class="legend ${kind}">${words}</span> `)}</p>`
    : html`<p class="quiet">The ${steps[0].items.length} operators of the file as it was uploaded.
      ${blamed.length > 0 && html`${" "}<span class="legend blamed">named by the problem</span>`}</p>`}
    ${found.length > 0 && html`<p>${found.slice(0, MOST_FOUND).map((one) => html`<button type="button" onClick=${() => choose(one)}>${short(one.text.trim())}</button> `)}
      ${found.length > MOST_FOUND && html`<span class="quiet">and ${found.length - MOST_FOUND} more</span>`}</p>`}
    <div class="beside" ref=${drawing}>${shown.map((at) => html`<section key=${at} aria-label=${NAMES[steps[at].name]}>
      <h2>${NAMES[steps[at].name] || steps[at].name}</h2>
      <${Canvas} scene=${scenes[at]} label=${`${steps[at].items.length} ${steps[at].name === "kernels" ? "kernels" : "operators"} and what flows between them`}
        chosen=${chosen && chosen.step === at ? chosen.item : null} lit=${lit(at)}
        choose=${(number) => choose(number === null ? null : { step: at, item: number })} />
    </section>`)}</div>
    ${item && html`<${Chosen} item=${item} step=${steps[chosen.step]} graph=${graph} plan=${plan} job=${job} link=${link} />`}
    ${shown.map((at) => steps[at].applied.length > 0 && html`<details><summary>What "${NAMES[steps[at].name]}" did: ${steps[at].applied.length} times</summary>
      <${Table} columns=${["what", "where", "why", "saved"]} rows=${steps[at].applied.map((one) => [one.what, one.where, one.why, one.note || ""])} /></details>`)}</div>`;
}

/** All that is known of an operator, or of a kernel. */
function Chosen({ item, step, graph, plan, job, link }) {
  const call = item.call || (plan && item.kernel !== undefined ? plan.calls[item.kernel] : null);
  const node = item.node;
  const value = (id) => {
    if (id === null) return "absent";
    const { name, type, constant } = (step.values || graph.values)[id] || {};
    const known = constant && `constant, ${constant.min === undefined ? `${figures(constant.elements)} elements` : `${figures(constant.min)} to ${figures(constant.max)}, mean ${figures(constant.mean)}, ${figures(100 * constant.zeros)} % zeros`}`;
    return `%${id} ${name || ""} ${type || ""}${known ? ` (${known})` : ""}`;
  };
  const here = node ? step.applied.filter((one) => one.where === `'${node.name}'` || one.where === `${node.op} %${node.writes[0]}`) : [];
  return html`<div class="box" aria-live="polite">
    <h2>${node ? `${node.op} ${node.name || ""}` : call.family}</h2>
    ${(item.reasons || []).map((one) => html`<p><strong class="bad">${one.reason}</strong>${one.fix && html`<br />Fix: ${one.fix}`}</p>`)}
    ${node && html`<${Table} columns=${["", "value"]} rows=${[...node.reads.map((id) => ["reads", value(id)]), ...node.writes.map((id) => ["writes", value(id)]),
      ...Object.entries(node.attributes || {}).map(([name, text]) => [name, text])]} />`}
    ${here.length > 0 && html`<${Table} columns=${["rule that fired here", "why", "saved"]} rows=${here.map((one) => [one.what, one.why, one.note || ""])} />`}
    ${call ? html`<${Facts} facts=${[
      ["kernel", `${item.kernel}: ${call.family}`],
      ["of the model", call.sources.join(", ")],
      ["time", `${seconds(call.predicted_s)} (${call.predicted_from})`],
      ["rate", call.flops ? `${figures(call.flops / call.predicted_s / 1e9)} GFLOP/s` : ""],
      ["tile tasks", call.tiles],
    ]} /><pre tabindex="0">${call.tile}</pre>
      ${(!link || link.download) && html`<${Code} job=${job} number=${item.kernel} />`}
      ${!link && html`<${Measured} job=${job} call=${call} />`}` : plan && html`<p class="quiet">No code is made for it.</p>`}
  </div>`;
}
