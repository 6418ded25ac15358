// What lies where in memory, and when: each activation's storage as a box, time to the right, addresses downward.

import { html, useMemo, useState } from "/web/vendor/htm-preact.js";
import { Canvas } from "/web/canvas.js";
import { ticks } from "/web/charts.js";
import { Facts, bytes, colour, figures, seconds } from "/web/shown.js";

const HIGH = 260;
const TOP = 4;

export function Arena({ plan }) {
  const [chosen, choose] = useState(null);
  const lives = useMemo(() => livesOf(plan), [plan]);
  const scene = useMemo(() => sceneOf(plan, lives), [lives]);
  if (!lives.length) return html`<h2>Memory</h2><p class="quiet">No activation lies in the arena: kernels write outputs directly.</p>`;
  const most = mostAlive(lives);
  const one = chosen === null ? null : lives[chosen];
  return html`<div>
    <h2>Memory</h2>
    <p class="quiet">The arena of ${bytes(plan.arena_bytes)} over predicted time: ${lives.length} activations, together
      ${" "}${bytes(lives.reduce((sum, life) => sum + life.bytes, 0))}, of which at most ${bytes(most)} are alive at once
      (${figures((100 * most) / (plan.arena_bytes || 1))} % of the arena). Addresses go downward; a click tells who writes and reads.</p>
    <${Canvas} scene=${scene} flat=${true} label="Activations in the arena over time" axis=${axisOf(plan)} chosen=${chosen} choose=${choose} />
    ${one && html`<${Facts} facts=${[
      ["storage", one.storage], ["bytes", bytes(one.bytes)], ["at", `${figures(one.at)} of ${figures(plan.arena_bytes)}`],
      ["alive", `${seconds(one.begin)} to ${seconds(one.end)}`],
      ["written by", one.writers.map((call) => named(plan, call)).join("; ")],
      ["read by", one.readers.map((call) => named(plan, call)).join("; ") || "nothing"],
    ]} />`}</div>`;
}

const named = (plan, call) => `${plan.calls[call].family}${plan.calls[call].sources.length ? ` (${plan.calls[call].sources.join(", ")})` : ""}`;

/** The storages of the arena with the predicted seconds between which they are written or read. */
function livesOf(plan) {
  const spans = plan.calls.map(() => [Infinity, 0]);
  for (const task of plan.tasks) {
    spans[task.call][0] = Math.min(spans[task.call][0], task.begin_s);
    spans[task.call][1] = Math.max(spans[task.call][1], task.end_s);
  }
  const lives = new Map();
  const note = (storage, call, kind) => {
    const place = plan.storages[storage];
    if (!place || place.space !== "arena" || !place.bytes || spans[call][0] > spans[call][1]) return;
    if (!lives.has(storage)) lives.set(storage, { storage, at: place.at, bytes: place.bytes, begin: Infinity, end: 0, writers: [], readers: [] });
    const life = lives.get(storage);
    life.begin = Math.min(life.begin, spans[call][0]);
    life.end = Math.max(life.end, spans[call][1]);
    if (!life[kind].includes(call)) life[kind].push(call);
  };
  plan.calls.forEach((call, at) => {
    for (const storage of call.writes) note(storage, at, "writers");
    for (const storage of call.reads) note(storage, at, "readers");
  });
  return [...lives.values()];
}

/** The largest sum of bytes that are alive at one time. */
function mostAlive(lives) {
  const changes = lives.flatMap((life) => [[life.begin, life.bytes], [life.end, -life.bytes]]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  let [now, most] = [0, 0];
  for (const [, change] of changes) {
    now += change;
    most = Math.max(most, now);
  }
  return most;
}

const scaled = (plan, amount) => (HIGH * amount) / (plan.arena_bytes || 1);

function sceneOf(plan, lives) {
  const boxes = lives.map((life) => {
    const family = life.writers.length ? plan.calls[life.writers[0]].family : "";
    const title = `${life.writers.map((call) => named(plan, call)).join("; ") || "not written"}: ${bytes(life.bytes)}, ${seconds(life.begin)} to ${seconds(life.end)}`;
    const h = Math.max(1, scaled(plan, life.bytes) - 1);
    return { x: life.begin, w: life.end - life.begin, y: TOP + scaled(plan, life.at), h, fill: colour(family), title, text: h > 16 ? [`${family} ${bytes(life.bytes)}`] : undefined };
  });
  const width = plan.tasks.reduce((most, task) => Math.max(most, task.end_s), 0) || 1e-9;
  return { width, height: HIGH + TOP + 22, boxes, lines: [] };
}

/** Draws the seconds and the addresses. */
function axisOf(plan) {
  return (pen, { from, to, at, high, colour: ink }) => {
    pen.fillStyle = ink;
    const step = ticks(to - from)[1] || 1;
    for (let second = Math.max(0, Math.ceil(from / step)) * step; second <= to; second += step) {
      pen.globalAlpha = 0.15;
      pen.fillRect(at(second), 0, 1, high);
      pen.globalAlpha = 0.7;
      pen.fillText(seconds(second), at(second) + 3, high - 5);
    }
    for (const address of ticks(plan.arena_bytes, 4)) {
      pen.globalAlpha = 0.15;
      pen.fillRect(0, TOP + scaled(plan, address), 1e5, 1);
      pen.globalAlpha = 0.7;
      if (address) pen.fillText(bytes(address), 3, TOP + scaled(plan, address) - 3);
    }
    pen.globalAlpha = 1;
  };
}
