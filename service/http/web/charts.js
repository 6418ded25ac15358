// Drawings of plans, steps and measurements. Everything drawn is in the data that the API gives.

import { html, useEffect, useMemo, useState } from "/web/vendor/htm-preact.js";
import { Canvas } from "/web/canvas.js";
import { Facts, colour, figures, seconds } from "/web/shown.js";

export const WIDTH = Math.max(340, Math.min(1100, innerWidth - 24)); // units of a drawing: pixels where the window is narrower
export const LEFT = 70;

/** Lines at round values of an axis from 0 to `most`. */
export function ticks(most, count = 6) {
  if (!(most > 0)) return [0];
  const rough = most / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  return Array.from({ length: Math.floor(most / step + 1e-9) + 1 }, (_, at) => at * step);
}

export function TimeAxis({ most, height, x }) {
  return ticks(most, Math.min(6, WIDTH / 90)).map((at) => html`
    <line class="grid" x1=${x(at)} x2=${x(at)} y1="0" y2=${height - 18} />
    <text class="axis" x=${x(at)} y=${height - 5} text-anchor=${at > 0.95 * most ? "end" : "start"}>${seconds(at)}</text>`);
}

/** The time by this machine, each second while it matters. */
function useNow(live) {
  const [now, set] = useState(Date.now());
  useEffect(() => {
    if (!live) return undefined;
    const timer = setInterval(() => set(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [live]);
  return now;
}

/** When each step of a compilation began and ended. */
export function Phases({ events, ended }) {
  const now = useNow(!ended);
  const steps = events.filter((event) => event.kind === "phase");
  if (!steps.length) return ended ? null : html`<p class="quiet">It has not begun.</p>`;
  const time = (event) => Date.parse(event.at) / 1000;
  const begin = time(steps[0]);
  const told = time(events[events.length - 1]);
  const last = ended ? told : Math.max(told, now / 1000); // what runs is drawn to now
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
          <title>${step.phase}: ${seconds(to - from)}${!ended && row + 1 === steps.length ? " so far" : ""}</title></rect>
        ${!ended && row + 1 === steps.length && html`<text x=${Math.min(x(to), WIDTH - 90) - 6} y=${22 * row + 15} text-anchor="end" class="running">${seconds(to - from)}</text>`}`;
    })}
  </svg>`;
}

/** Tasks on their lanes over time, predicted above measured, with hand-overs as lines; a click tells of the kernel. */
export function Schedule({ plan }) {
  const [chosen, choose] = useState(null);
  const traced = plan.tasks.length > 0 && plan.tasks.every((task) => task.measured_s);
  const lanes = 1 + plan.tasks.reduce((most, task) => Math.max(most, task.lane), 0);
  const scene = useMemo(() => timeScene(plan, lanes, traced), [plan]);
  const crossing = scene.lines.length / (traced ? 2 : 1);
  const task = chosen !== null && plan.tasks[chosen % plan.tasks.length];
  return html`<div>
    <p class="quiet">The plan "${plan.scheduler}": ${seconds(scene.predicted)} predicted${traced ? `, ${seconds(scene.width)} in the traced runs (the lower row of each lane)` : ""}.
      ${" "}${plan.tasks.length} tasks on ${lanes} lane${lanes > 1 ? "s" : ""}, ${crossing} hand-overs between lanes of
      ${" "}${seconds(plan.handover_s)} each. Outlined tasks are on the critical path.</p>
    <${Canvas} scene=${scene} flat=${true} label="Tasks of each lane over time" axis=${timeAxis(lanes, traced)}
      chosen=${chosen} choose=${choose} />
    ${task && html`<${Call} call=${plan.calls[task.call]} task=${task} />`}</div>`;
}

const ROW = 30;
const laneHeight = (traced) => (traced ? 2 : 1) * ROW + 14;

/** Boxes of all predicted tasks, then of all measured ones; x is seconds. */
function timeScene(plan, lanes, traced) {
  const high = laneHeight(traced);
  const spans = [plan.tasks.map((task) => [task.begin_s, task.end_s]), ...(traced ? [plan.tasks.map((task) => task.measured_s)] : [])];
  const ends = spans.map((of) => of.reduce((most, [, end]) => Math.max(most, end), 0) || 1e-9);
  const y = (task, row) => high * task.lane + 18 + ROW * row;
  const boxes = spans.flatMap((of, row) => of.map(([begin, end], at) => {
    const task = plan.tasks[at];
    const call = plan.calls[task.call];
    return {
      x: begin, w: end - begin, y: y(task, row), h: ROW - 4, fill: colour(call.family), text: [call.family],
      title: `${call.family}: ${seconds(end - begin)} ${row ? "measured" : "predicted"}`, edge: task.critical && !row ? "strong" : undefined,
    };
  }));
  const lanesTasks = Array.from({ length: lanes }, () => []);
  plan.tasks.forEach((task, at) => lanesTasks[task.lane].push(at));
  const pairs = plan.tasks.flatMap((task, at) => task.waits.map(([lane, count]) => [lanesTasks[lane][count - 1], at])).filter(([from]) => from !== undefined);
  const lines = spans.flatMap((of, row) => pairs.map(([from, to]) => ({
    from: [of[from][1], y(plan.tasks[from], row) + ROW / 2], to: [of[to][0], y(plan.tasks[to], row) + ROW / 2],
    boxes: [from + row * of.length, to + row * of.length],
  })));
  return { width: Math.max(...ends), predicted: ends[0], height: high * lanes + 30, boxes, lines };
}

/** Draws the seconds and the names of lanes. */
function timeAxis(lanes, traced) {
  return (pen, { from, to, at, high, colour: ink }) => {
    pen.fillStyle = pen.strokeStyle = ink;
    const step = ticks(to - from)[1] || 1;
    for (let second = Math.max(0, Math.ceil(from / step)) * step; second <= to; second += step) {
      pen.globalAlpha = 0.15;
      pen.fillRect(at(second), 0, 1, high);
      pen.globalAlpha = 0.7;
      pen.fillText(seconds(second), at(second) + 3, high - 5);
    }
    for (let lane = 0; lane < lanes; lane++) pen.fillText(`lane ${lane}`, 4, laneHeight(traced) * lane + 13);
    pen.globalAlpha = 1;
  };
}

function Call({ call, task }) {
  return html`<h2>${call.family}</h2><${Facts} facts=${[
    ["of the model", call.sources.join(", ")],
    ["time", `${seconds(call.predicted_s)} (${call.predicted_from})`],
    ["rate", call.flops ? `${figures(call.flops / call.predicted_s / 1e9)} GFLOP/s` : ""],
    ["tile tasks", call.tiles],
    ["this task", `${task.first} to ${task.last - 1} of them, at ${seconds(task.begin_s)}`],
    ["measured", task.measured_s && `${seconds(task.measured_s[1] - task.measured_s[0])}, at ${seconds(task.measured_s[0])}`],
  ]} /><pre tabindex="0">${call.tile}</pre>`;
}

const FARTHEST = 3; // medians: what took longer is counted and not drawn, so that the others can be told apart

/** How often a run took how long. */
export function Histogram({ samples, median }) {
  const sorted = [...samples].sort((a, b) => a - b);
  const [low, high] = [sorted[0], Math.min(sorted[Math.floor(0.99 * (sorted.length - 1))], FARTHEST * median)];
  const longer = sorted.filter((one) => one > high).length;
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
    ${x(median) < WIDTH - 300 && html`<text class="axis" x=${WIDTH - 10} y="142" text-anchor="end">${seconds(high)}${longer ? `; ${figures(longer)} of ${figures(sorted.length)} runs took longer` : ""}</text>`}
    <text x=${Math.min(Math.max(x(median), 60), WIDTH - 60)} y="142" text-anchor="middle">median ${seconds(median)}</text>
  </svg>`;
}

/**
 * Kernels over operations per byte of their operands, beneath what the machine could do: each level of memory is a slope, its
 * arithmetic a flat line (Williams et al., 2009). A dot's area is the kernel's part of the whole time.
 */
export function Roofline({ points, ceilings }) {
  const height = 380;
  const roofs = ceilings ? Object.entries(ceilings.bytes_per_s) : [];
  const top = ceilings ? ceilings.flop_per_s : 0;
  const decade = (values, way) => way(Math.log10(values.reduce((a, b) => (way === Math.floor ? Math.min(a, b) : Math.max(a, b)))) + (way === Math.ceil ? 1e-9 : 0));
  const knees = roofs.map(([, rate]) => top / rate);
  const xs = [decade([...points.map((one) => one.intensity), ...knees], Math.floor), decade([...points.map((one) => one.intensity), ...knees], Math.ceil)];
  const ys = [decade(points.map((one) => one.rate), Math.floor), decade([...points.map((one) => one.rate), ...(top ? [top] : [])], Math.ceil)];
  const x = (value) => LEFT + ((Math.log10(value) - xs[0]) / Math.max(1, xs[1] - xs[0])) * (WIDTH - LEFT - 10);
  const y = (value) => height - 24 - ((Math.log10(value) - ys[0]) / Math.max(1, ys[1] - ys[0])) * (height - 34);
  const decades = ([low, high]) => Array.from({ length: high - low + 1 }, (_, n) => 10 ** (low + n));
  const roof = (rate) => {
    const from = Math.max(10 ** xs[0], 10 ** ys[0] / rate);
    return `M${x(from)} ${y(from * rate)} L${x(top / rate)} ${y(top)}`;
  };
  const steep = (-180 / Math.PI) * Math.atan2(y(1) - y(10), x(10) - x(1)); // of every slope, in degrees
  const along = (rate) => {
    const from = 1.15 * Math.max(10 ** xs[0], 10 ** ys[0] / rate);
    return `translate(${x(from)} ${y(from * rate)}) rotate(${steep})`;
  };
  return html`<svg class="chart" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="Kernels beneath the machine's ceilings">
    ${decades(xs).map((one) => html`<line class="grid" x1=${x(one)} x2=${x(one)} y1="10" y2=${height - 24} />
      <text class="axis" x=${x(one)} y=${height - 8} text-anchor=${x(one) > WIDTH - 20 ? "end" : "middle"}>${figures(one)}</text>`)}
    ${decades(ys).map((one) => html`<line class="grid" x1=${LEFT} x2=${WIDTH - 10} y1=${y(one)} y2=${y(one)} />
      <text class="axis" x=${LEFT - 6} y=${y(one) + 4} text-anchor="end">${figures(one / 1e9)}</text>`)}
    ${roofs.map(([level, rate]) => html`<path class="edge roof" d=${roof(rate)}><title>${level}: ${figures(rate / 1e9)} GB/s</title></path>
      <text class="axis" transform=${along(rate)} y="-4">${level} ${figures(rate / 1e9)} GB/s</text>`)}
    ${top > 0 && html`<path class="edge roof" d="M${x(Math.min(...knees))} ${y(top)} L${WIDTH - 10} ${y(top)}" />
      <text class="axis" x=${WIDTH - 12} y=${y(top) - 14} text-anchor="end">fp32 ${figures(top / 1e9)} GFLOP/s${ceilings.measured ? "" : " (by the profile)"}</text>`}
    ${points.map(({ intensity, rate, part, call }) => html`<circle class="dot" cx=${x(intensity)} cy=${y(rate)} r=${4 + 14 * Math.sqrt(part)} style=${{ fill: colour(call.family) }}>
      <title>${call.family}: ${figures(rate / 1e9)} GFLOP/s, ${seconds(call.predicted_s)}, ${figures(100 * part)} % of the time</title></circle>`)}
    <text class="axis" x=${WIDTH - 10} y=${height - 30} text-anchor="end">operations per byte of operands</text>
    <text class="axis" x=${LEFT + 6} y="20">GFLOP/s</text>
  </svg>`;
}

/** Points (seconds since 1970, seconds, label) over time. */
export function Over({ points }) {
  const height = 200;
  const [first, last] = [points[0][0], points[points.length - 1][0]];
  const most = 1.1 * points.reduce((high, [, value]) => Math.max(high, value), 0);
  const x = (at) => LEFT + ((WIDTH - LEFT - 30) * (at - first)) / Math.max(last - first, 1);
  const y = (value) => height - 24 - ((height - 34) * value) / most;
  return html`<svg class="chart" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="Latency of ${points.length} artifacts over time">
    ${ticks(most, 4).map((one) => html`<line class="grid" x1=${LEFT} x2=${WIDTH - 10} y1=${y(one)} y2=${y(one)} />
      <text class="axis" x=${LEFT - 6} y=${y(one) + 4} text-anchor="end">${seconds(one)}</text>`)}
    <path class="edge" d=${points.map(([at, value], n) => `${n ? "L" : "M"}${x(at)} ${y(value)}`).join(" ")} />
    ${points.map(([at, value, label]) => html`<circle class="dot history" r="5" cx=${x(at)} cy=${y(value)}><title>${label}</title></circle>`)}
    <text class="axis" x=${LEFT} y=${height - 6}>${new Date(1000 * first).toLocaleString()}</text>
    <text class="axis" x=${WIDTH - 10} y=${height - 6} text-anchor="end">${new Date(1000 * last).toLocaleString()}</text>
  </svg>`;
}

/** Points (x, y, label, colour), y on a logarithmic axis. */
export function Scatter({ points, xName, yName }) {
  const height = 320;
  const values = points.map(([, y]) => y);
  const ys = [Math.floor(Math.log10(Math.min(...values))), Math.ceil(Math.log10(Math.max(...values)) + 1e-9)];
  const most = Math.max(...points.map(([x]) => x));
  const x = (value) => LEFT + ((WIDTH - LEFT - 20) * value) / most;
  const y = (value) => height - 24 - ((Math.log10(value) - ys[0]) / Math.max(1, ys[1] - ys[0])) * (height - 34);
  const decades = Array.from({ length: ys[1] - ys[0] + 1 }, (_, n) => 10 ** (ys[0] + n));
  return html`<svg class="chart" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="${yName} over ${xName}">
    ${ticks(most).map((one) => html`<text class="axis" x=${x(one)} y=${height - 8} text-anchor="middle">${figures(one)}</text>`)}
    ${decades.map((one) => html`<line class="grid" x1=${LEFT} x2=${WIDTH - 10} y1=${y(one)} y2=${y(one)} />
      <text class="axis" x=${LEFT - 6} y=${y(one) + 4} text-anchor="end">${figures(one)}</text>`)}
    ${points.map(([at, value, label, fill]) => html`<circle class="dot" r="4" cx=${x(at)} cy=${y(value)} style=${{ fill }}><title>${label}</title></circle>`)}
    <text class="axis" x=${WIDTH - 10} y=${height - 30} text-anchor="end">${xName}</text>
    <text class="axis" x=${LEFT + 6} y="20">${yName}</text>
  </svg>`;
}
