// Drawings of plans and of steps, in SVG. Everything drawn is in the data that the API gives.

import { html, useMemo, useState } from "/web/vendor/htm-preact.js";
import { Facts, bytes, colour, figures, seconds } from "/web/shown.js";

const WIDTH = 1100;
const LEFT = 70;

/** Lines at round values of an axis from 0 to `most`. */
function ticks(most, count = 6) {
  if (!(most > 0)) return [0];
  const rough = most / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, at) => at * step);
}

function TimeAxis({ most, height, x }) {
  return ticks(most).map((at) => html`
    <line class="grid" x1=${x(at)} x2=${x(at)} y1="0" y2=${height - 18} />
    <text class="axis" x=${x(at)} y=${height - 5} text-anchor=${at > 0.95 * most ? "end" : "start"}>${seconds(at)}</text>`);
}

/** When each step of a compilation began and ended. */
export function Phases({ events, ended }) {
  const steps = events.filter((event) => event.kind === "phase");
  if (!steps.length) return ended ? null : html`<p class="quiet">It has not begun.</p>`;
  const time = (event) => Date.parse(event.at) / 1000;
  const begin = time(steps[0]);
  const last = ended || steps.length > 1 ? time(events[events.length - 1]) : begin;
  const span = Math.max(last - begin, 1e-3);
  const x = (at) => LEFT + ((WIDTH - LEFT - 10) * at) / span;
  const height = 22 * steps.length + 24;
  return html`<svg class="chart" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="When each step ran">
    <${TimeAxis} most=${span} height=${height} x=${x} />
    ${steps.map((step, row) => {
      const from = time(step) - begin;
      const to = row + 1 < steps.length ? time(steps[row + 1]) - begin : span;
      return html`<text class="axis" x=${LEFT - 6} y=${22 * row + 15} text-anchor="end">${step.phase}</text>
        <rect x=${x(from)} y=${22 * row + 3} height="16" width=${Math.max(1, x(to) - x(from))} fill=${colour(step.phase)}>
          <title>${step.phase}: ${seconds(to - from)}</title></rect>`;
    })}
  </svg>`;
}

/** Tasks on their lanes over time, with hand-overs as lines; a click tells of the kernel. */
export function Schedule({ plan }) {
  const [chosen, choose] = useState(null);
  const lanes = 1 + plan.tasks.reduce((most, task) => Math.max(most, task.lane), 0);
  const span = plan.tasks.reduce((most, task) => Math.max(most, task.end_s), 0) || 1e-9;
  const x = (at) => LEFT + ((WIDTH - LEFT - 10) * at) / span;
  const height = 44 * lanes + 24;
  const middle = (task) => 44 * task.lane + 22;
  const waits = plan.tasks.flatMap((task) => task.waits.map((at) => [plan.tasks[at], task])).filter(([from, to]) => from && from.lane !== to.lane);
  return html`
    <p class="quiet">The plan "${plan.scheduler}" as the scheduler expects it: ${seconds(span)}, ${plan.tasks.length} tasks on
      ${" "}${lanes} lane${lanes > 1 ? "s" : ""}, ${waits.length} hand-overs between lanes of ${seconds(plan.handover_s)} each. Outlined tasks
      are on the critical path.</p>
    <svg class="chart" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="Tasks of each lane over time">
      <${TimeAxis} most=${span} height=${height} x=${x} />
      ${Array.from({ length: lanes }, (_, lane) => html`<text class="axis" x=${LEFT - 6} y=${44 * lane + 26} text-anchor="end">lane ${lane}</text>`)}
      ${plan.tasks.map((task, number) => {
        const call = plan.calls[task.call];
        return html`<rect class="box ${task.critical ? "critical" : ""} ${number === chosen ? "chosen" : ""}" x=${x(task.begin_s)} y=${44 * task.lane + 6}
          width=${Math.max(1, x(task.end_s) - x(task.begin_s))} height="32" fill=${colour(call.family)} onClick=${() => choose(number)}>
          <title>${call.family}: ${seconds(task.end_s - task.begin_s)}</title></rect>`;
      })}
      ${waits.map(([from, to]) => html`<path class="edge" d="M${x(from.end_s)} ${middle(from)} L${x(to.begin_s)} ${middle(to)}" />`)}
    </svg>
    ${chosen !== null && html`<${Call} call=${plan.calls[plan.tasks[chosen].call]} task=${plan.tasks[chosen]} />`}`;
}

function Call({ call, task }) {
  return html`<h2>${call.family}</h2><${Facts} facts=${[
    ["of the model", call.sources.join(", ")],
    ["time", `${seconds(call.predicted_s)} (${call.predicted_from})`],
    ["rate", call.flops ? `${figures(call.flops / call.predicted_s / 1e9)} GFLOP/s` : ""],
    ["tile tasks", call.tiles],
    ["this task", task && `${task.first} to ${task.last - 1} of them, at ${seconds(task.begin_s)}`],
  ]} /><pre>${call.tile}</pre>`;
}

const BOX_W = 168;
const BOX_H = 40;

/** The kernels of a plan and what flows between them, in layers: a kernel stands below all that it reads. */
export function Graph({ plan }) {
  const [chosen, choose] = useState(null);
  const [zoom, setZoom] = useState(1);
  const { places, edges, width, height } = useMemo(() => laidOut(plan), [plan]);
  return html`
    <div class="row">
      <p class="quiet">${plan.calls.length} kernels; a kernel stands below those whose results it reads.</p>
      <button type="button" onClick=${() => setZoom(zoom * 1.25)} aria-label="larger">+</button>
      <button type="button" onClick=${() => setZoom(zoom / 1.25)} aria-label="smaller">−</button>
    </div>
    ${chosen !== null && html`<${Call} call=${plan.calls[chosen]} />`}
    <div class="scroll"><svg class="chart" style=${{ width: `${Math.round(zoom * width)}px` }} viewBox="0 0 ${width} ${height}"
        role="img" aria-label="Kernels and what flows between them">
      ${edges.map(([from, to, size]) => {
        const [a, b] = [places[from], places[to]];
        const [x1, y1, x2, y2] = [a.x + BOX_W / 2, a.y + BOX_H, b.x + BOX_W / 2, b.y];
        const lit = from === chosen || to === chosen ? "lit" : "";
        return html`<path class="edge ${lit}" d="M${x1} ${y1} C${x1} ${y1 + 24} ${x2} ${y2 - 24} ${x2} ${y2}"><title>${bytes(size)}</title></path>`;
      })}
      ${plan.calls.map((call, at) => html`<g onClick=${() => choose(at)}>
        <rect class="box ${at === chosen ? "chosen" : ""}" x=${places[at].x} y=${places[at].y} width=${BOX_W} height=${BOX_H} rx="5" fill=${colour(call.family)} />
        <text x=${places[at].x + 8} y=${places[at].y + 17} style=${{ fill: "#fff" }}>${short(call.family)}</text>
        <text x=${places[at].x + 8} y=${places[at].y + 32} style=${{ fill: "#fffc" }}>${seconds(call.predicted_s)}</text>
        <title>${call.family}: ${call.sources.join(", ")}</title></g>`)}
    </svg></div>`;
}

const short = (text) => (text.length > 24 ? `${text.slice(0, 23)}…` : text);

/** Layers by longest path; within a layer in the order of the mean place of what is read (Sugiyama's barycentres). */
export function laidOut(plan) {
  const writer = new Map();
  plan.calls.forEach((call, at) => call.writes.forEach((buffer) => writer.set(buffer, at)));
  const edges = [];
  const level = [];
  plan.calls.forEach((call, at) => {
    level[at] = 0;
    for (const buffer of new Set(call.reads)) {
      const from = writer.get(buffer);
      if (from === undefined || from >= at) continue;
      edges.push([from, at, (plan.storages[buffer] || { bytes: 0 }).bytes]);
      level[at] = Math.max(level[at], level[from] + 1);
    }
  });
  const layers = [];
  level.forEach((one, at) => (layers[one] = layers[one] || []).push(at));
  const reads = plan.calls.map(() => []);
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
  }
  const least = column.reduce((low, one) => Math.min(low, one), 0);
  const places = plan.calls.map((_, at) => ({ x: 10 + (column[at] - least) * (BOX_W + 24), y: 10 + level[at] * (BOX_H + 44) }));
  const width = Math.max(...places.map((place) => place.x)) + BOX_W + 10;
  return { places, edges, width, height: layers.length * (BOX_H + 44) + 10 };
}

/** How often a run took how long. */
export function Histogram({ samples, median }) {
  const sorted = [...samples].sort((a, b) => a - b);
  const [low, high] = [sorted[0], sorted[Math.floor(0.99 * (sorted.length - 1))]];
  const count = Math.min(40, Math.max(8, Math.round(Math.sqrt(sorted.length))));
  const width = (high - low) / count || 1e-12;
  const bars = Array(count).fill(0);
  for (const one of sorted) if (one <= high) bars[Math.min(count - 1, Math.floor((one - low) / width))]++;
  const most = Math.max(...bars);
  const x = (value) => 10 + ((WIDTH - 20) * (value - low)) / (count * width);
  return html`<svg class="chart" viewBox="0 0 ${WIDTH} 150" role="img" aria-label="How often a run took how long">
    ${bars.map((bar, at) => html`<rect class="bar" x=${x(low + at * width) + 1} width=${(WIDTH - 20) / count - 2} y=${125 - (110 * bar) / most} height=${(110 * bar) / most}>
      <title>${bar} runs of ${seconds(low + at * width)} to ${seconds(low + (at + 1) * width)}</title></rect>`)}
    <line class="edge lit" x1=${x(median)} x2=${x(median)} y1="10" y2="125" />
    ${x(median) > 130 && html`<text class="axis" x="10" y="142">${seconds(low)}</text>`}
    ${x(median) < WIDTH - 130 && html`<text class="axis" x=${WIDTH - 10} y="142" text-anchor="end">${seconds(high)}</text>`}
    <text x=${Math.min(Math.max(x(median), 60), WIDTH - 60)} y="142" text-anchor="middle">median ${seconds(median)}</text>
  </svg>`;
}

/** Points (x, y, label) on logarithmic axes. */
export function Scatter({ points, xName, yName }) {
  const height = 320;
  const span = (values) => [Math.floor(Math.log10(Math.min(...values))), Math.ceil(Math.log10(Math.max(...values)) + 1e-9)];
  const [xs, ys] = [span(points.map(([x]) => x)), span(points.map(([, y]) => y))];
  const at = (value, [low, high], from, to) => from + ((Math.log10(value) - low) / Math.max(1, high - low)) * (to - from);
  const decades = ([low, high]) => Array.from({ length: high - low + 1 }, (_, n) => 10 ** (low + n));
  return html`<svg class="chart" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="${yName} over ${xName}">
    ${decades(xs).map((one) => html`<line class="grid" x1=${at(one, xs, LEFT, WIDTH - 10)} x2=${at(one, xs, LEFT, WIDTH - 10)} y1="10" y2=${height - 24} />
      <text class="axis" x=${at(one, xs, LEFT, WIDTH - 10)} y=${height - 8} text-anchor="middle">${figures(one)}</text>`)}
    ${decades(ys).map((one) => html`<line class="grid" x1=${LEFT} x2=${WIDTH - 10} y1=${at(one, ys, height - 24, 10)} y2=${at(one, ys, height - 24, 10)} />
      <text class="axis" x=${LEFT - 6} y=${at(one, ys, height - 24, 10) + 4} text-anchor="end">${figures(one)}</text>`)}
    ${points.map(([x, y, label]) => html`<circle class="dot" r="4" cx=${at(x, xs, LEFT, WIDTH - 10)} cy=${at(y, ys, height - 24, 10)}><title>${label}</title></circle>`)}
    <text class="axis" x=${WIDTH - 10} y=${height - 30} text-anchor="end">${xName}</text>
    <text class="axis" x=${LEFT + 6} y="20">${yName}</text>
  </svg>`;
}
