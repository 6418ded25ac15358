// How numbers and moments are written, and the small pieces that every view uses.

import { html, useEffect, useRef, useState } from "/web/vendor/htm-preact.js";

export function seconds(value) {
  if (value === null || value === undefined) return "";
  if (value === 0) return "0 s";
  for (const [unit, factor] of [["s", 1], ["ms", 1e3], ["µs", 1e6]]) {
    if (Math.abs(value) * factor >= 1) return `${figures(value * factor)} ${unit}`;
  }
  return `${figures(value * 1e9)} ns`;
}

export function bytes(value) {
  let number = value;
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (number < 1000) return `${figures(number)} ${unit}`;
    number /= 1000;
  }
  return `${figures(number)} TB`;
}

/** Three significant digits, without an exponent where a person can read it. */
export function figures(value) {
  if (!Number.isFinite(value)) return String(value);
  const magnitude = Math.abs(value);
  if (magnitude >= 1000) return Math.round(value).toLocaleString("en");
  if (magnitude !== 0 && magnitude < 1e-3) return value.toExponential(2);
  return String(Number(value.toPrecision(3)));
}

export function moment(text) {
  return text ? new Date(text).toLocaleString() : "";
}

/** What the tab is called, by which people tell tabs apart; the service alone where there is nothing to say. */
export function useTitle(text) {
  useEffect(() => { document.title = text ? `${text} · Tilewright` : "Tilewright"; }, [text]);
}

/** On how many lanes a plan is. */
export const lanesOf = (plan) => `${plan.lanes} lane${plan.lanes === 1 ? "" : "s"}`;

/** An id by its ends, by which people tell them apart. */
export const brief = (id) => `${id.slice(0, 8)}…${id.slice(-6)}`;

const HUES = [212, 152, 28, 268, 340, 88, 186, 48, 300, 8];

/** One colour for each kind of operator, the same on every view. */
export function colour(name) {
  let sum = 0;
  for (const letter of name) sum = (31 * sum + letter.charCodeAt(0)) >>> 0;
  return `hsl(${HUES[sum % HUES.length]} 55% ${46 + (sum % 3) * 7}%)`;
}

export function State({ job }) {
  const kind = { SUCCEEDED: "good", FAILED: "bad", CANCELLED: "quiet" }[job.state] || "";
  return html`<span class="state ${kind}">${job.state.toLowerCase()}${job.cached ? " (cached)" : ""}</span>`;
}

/** Names with values; what is unknown is left out. A third entry is the kind of box: "first" stands out. */
export function Facts({ facts }) {
  const rows = facts.filter(([, value]) => value || value === 0);
  return html`<div class="facts">${rows.map(
    ([name, value, kind = ""]) => html`<div class="fact ${kind}" key=${name}><span>${name}</span>${value}</div>`,
  )}</div>`;
}

/** A table of rows of cells; columns that start with "#" hold numbers. */
export function Table({ columns, rows, empty = "Nothing yet.", kind = "", about = "" }) {
  if (!rows.length) return html`<p class="quiet">${empty}</p>`;
  const number = columns.map((name) => name.startsWith("#"));
  return html`<div>${about && html`<p class="quiet">${about}</p>`}<div class="scroll" tabindex="0" role="group" aria-label=${`Table: ${columns.map((name) => name.replace("#", "")).filter(Boolean).join(", ")}`}><table class=${kind}>
    <thead><tr>${columns.map((name, at) => html`<th class=${number[at] ? "number" : ""}>${name.replace("#", "")}</th>`)}</tr></thead>
    <tbody>${rows.map(
      (cells) => html`<tr>${cells.map((cell, at) => html`<td class=${number[at] ? "number" : ""} data-name=${columns[at].replace("#", "")}>${cell}</td>`)}</tr>`,
    )}</tbody>
  </table></div></div>`;
}

/** Leads to a node of a graph at the address `at(name)`; a graph that is there already is told by the event "node". */
function NodeLink({ name, at, children }) {
  return html`<a href=${at(name)} title="Show it in the graph" onClick=${() => dispatchEvent(new CustomEvent("node", { detail: name }))}>${children}</a>`;
}

/** What went wrong, and what mends it; `at` gives of a node's name the address at which the node is shown. */
export function Failure({ error, at = null }) {
  if (!error) return null;
  const blamed = error.details && error.details.node;
  return html`<div class="box bad" role="alert">
    <strong class="bad">${error.message}</strong>
    ${error.fix && html`<div>Fix: ${error.fix}</div>`}
    ${at && blamed && html`<div><${NodeLink} name=${blamed} at=${at}>Show ${blamed} in the graph<//></div>`}
    <${Refusals} refusals=${error.refusals || []} at=${at} />
  </div>`;
}

/** Of what is asked for, until it is there: what went wrong, or that it is waited for. */
export function Awaited({ value, error, of }) {
  if (error) return html`<${Failure} error=${error} />`;
  return value === null ? html`<p class="quiet" role="status">Fetching ${of} …</p>` : null;
}

export function Refusals({ refusals, at = null }) {
  if (!refusals.length) return null;
  const rows = refusals.map((one) => [one.operator, at && one.node ? html`<${NodeLink} name=${one.node} at=${at}>${one.node}<//>` : one.node, one.reason, one.fix]);
  return html`<${Table} columns=${["operator", "node", "reason", "fix"]} rows=${rows} />`;
}

/** The nodes that a problem names: {node, operator, reason, fix} of each. */
export function nodesOf(problem) {
  if (!problem) return [];
  const { node, operator = "" } = problem.details || {};
  return [...(problem.refusals || []).filter((one) => one.node), ...(node ? [{ node, operator, reason: problem.message, fix: problem.fix }] : [])];
}

/** What `fetcher` gives, again every `everyS` seconds while the view is open; [value, error, ask again]. */
export function useFetched(fetcher, dependencies, everyS = 0) {
  const [state, set] = useState([null, null]);
  const turn = useRef(0);
  const again = async () => {
    const mine = ++turn.current;
    try {
      const value = await fetcher();
      if (mine === turn.current) set([value, null]);
    } catch (error) {
      if (mine === turn.current) set(([value]) => [value, error]);
    }
  };
  useEffect(() => {
    set([null, null]);
    again();
    const timer = everyS ? setInterval(again, 1000 * everyS) : 0;
    return () => { turn.current++; clearInterval(timer); };
  }, dependencies);
  return [...state, again];
}

/**
 * A button whose work may fail; the reason is shown beside it. One element, as every component is that comes late: this
 * Preact puts the parts of a late component without one before everything else.
 */
export function Act({ name, act, main = false, disabled = false }) {
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const go = async () => {
    setBusy(true);
    setError(null);
    try { await act(); } catch (problem) { setError(problem); }
    setBusy(false);
  };
  return html`<span class="parts"><button type="button" class=${main ? "main" : ""} disabled=${busy || disabled} onClick=${go}>${name}</button>
    ${error && html`<span class="bad" role="alert">${error.message}</span>`}</span>`;
}
