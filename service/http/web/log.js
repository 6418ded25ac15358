// The log of a job, as sentences for people or as the JSON that programs are given.

import { html, useState } from "/web/vendor/htm-preact.js";
import { get } from "/web/api.js";
import { Awaited, seconds, useFetched } from "/web/shown.js";

const LIVE_S = 2;
const HEAD = ["seq", "kind", "at", "phase", "fraction"]; // what an event has beside what it tells

/** `ended`: nothing more will come. */
export function Log({ job, ended }) {
  const [log, error] = useFetched(() => get(`${job.links.log}?format=json`), [job.id, job.state], ended ? 0 : LIVE_S);
  const [plain, setPlain] = useState(false);
  if (!log) return html`<${Awaited} value=${log} error=${error} of="the log" />`;
  return html`<div>
    <p><label><input type="checkbox" name="json" checked=${plain} onChange=${(event) => setPlain(event.target.checked)} /> as JSON, a line for each event</label></p>
    <pre class="log" tabindex="0">${(plain ? log.events.map((event) => JSON.stringify(event)) : linesOf(log)).join("\n")}</pre></div>`;
}

/** One line for each event: seconds since the job was made, and what happened; an attempt is told with its worker. */
export function linesOf({ events }) {
  if (!events.length) return ["nothing has happened yet"];
  const begin = Date.parse(events[0].at);
  return events.map((event) => `${`+${((Date.parse(event.at) - begin) / 1000).toFixed(2)} s`.padStart(11)}  ${sentenceOf(event)}`);
}

export function sentenceOf(event) {
  switch (event.kind) {
    case "state": return `the job is ${String(event.state).toLowerCase()}${restOf(event, ["state"])}`;
    case "phase": return `step ${event.phase}: ${Math.round(100 * (event.fraction || 0))} % done before it`;
    case "tuning": return `measured candidates of ${event.phase || "tile"}${restOf(event)}`;
    case "piece": return event.data?.output ? `${event.data.output} from ${event.data.first} on` : "";
    case "tokens": return `tokens ${(event.data?.tokens || []).join(" ")}`;
    case "progress": case "notice": case "printed": return String(event.message || "").trimEnd();
    default: return `${event.kind}${restOf(event)}`;
  }
}

/** What else an event tells, in words: plain values alone, times as times. */
function restOf(event, without = []) {
  const told = Object.entries(event).filter(([name, value]) => ![...HEAD, ...without].includes(name) && value !== null && typeof value !== "object" && value !== false);
  const words = told.map(([name, value]) => `${name.replace(/_s$/, "").replaceAll("_", " ")} ${name.endsWith("_s") && typeof value === "number" ? seconds(value) : value}`);
  return words.length ? `; ${words.join(", ")}` : "";
}
