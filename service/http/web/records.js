// Tuning measurements: filtered, as points and as a table, page by page; a file holds all that the filters let through.

import { html, useState } from "/web/vendor/htm-preact.js";
import { download, get } from "/web/api.js";
import { Scatter } from "/web/charts.js";
import { Act, Awaited, Table, colour, moment, seconds, useFetched } from "/web/shown.js";

const KINDS = ["kernel", "plan", "stage", "search", "handover", "pair", "machine"];
const FIELDS = [["operator", "Operator"], ["query", "Shape, or text"], ["target", "Target"], ["hardware", "Device"], ["workload", "Workload"], ["job", "Job"]];
const TIMES = [["since", "Measured from"], ["until", "Measured before"]];
const PER_PAGE = "200";

/** The filters as the API takes them: what is empty is left out, times of this browser's zone are told in UTC. */
function asked(wish) {
  const given = Object.entries(wish).map(([name, value]) => [name, value.trim()]).filter(([, value]) => value);
  const times = TIMES.map(([name]) => name);
  return new URLSearchParams(given.map(([name, value]) => [name, times.includes(name) ? new Date(value).toISOString() : value]));
}

export function Records() {
  const [wish, setWish] = useState({ kind: "kernel" }); // what is shown
  const [text, setText] = useState({}); // what is typed
  const [cursors, setCursors] = useState([]);
  const filters = asked(wish);
  const query = new URLSearchParams([...filters, ["limit", PER_PAGE], ...cursors.slice(-1).map((one) => ["cursor", one])]);
  const [page, error] = useFetched(() => get(`/tuning-records?${query}`), [String(query)]);
  const records = page ? page.records : [];
  const points = records.filter((one) => one.seconds > 0 && one.variant.levels).map((one, at) => [at + 1, 1e6 * one.seconds, `${one.operator}: ${seconds(one.seconds)}`, colour(one.operator)]);
  const look = (next) => { setWish(next); setCursors([]); };
  const write = (name) => (event) => setText({ ...text, [name]: event.target.value });
  const narrow = (name, value) => { setText({ ...text, [name]: value }); look({ ...wish, [name]: value }); };
  return html`<div>
    <h1>Measurements</h1>
    <form class="row" role="search" onSubmit=${(event) => { event.preventDefault(); look({ kind: wish.kind, ...text }); }}>
      <label class="field">Kind <select value=${wish.kind} onChange=${(event) => look({ ...wish, kind: event.target.value })}>
        ${KINDS.map((one) => html`<option value=${one} selected=${one === wish.kind}>${one}</option>`)}
      </select></label>
      ${FIELDS.map(([name, title]) => html`<label class="field">${title}
        <input name=${name} value=${text[name] || ""} onInput=${write(name)} /></label>`)}
      ${TIMES.map(([name, title]) => html`<label class="field">${title}
        <input name=${name} type="datetime-local" step="1" value=${text[name] || ""} onInput=${write(name)} /></label>`)}
      <button>Filter</button>
    </form>
    <div class="row"><span class="quiet">All measurements that these filters let through, on every page, as a file:</span>
      <${Act} name="CSV" act=${() => download(`/tuning-records?${filters}&format=csv`, "tuning-records.csv")} />
      <${Act} name="Parquet" act=${() => download(`/tuning-records?${filters}&format=parquet`, "tuning-records.parquet")} />
    </div>
    <${Awaited} value=${page} error=${error} of="measurements" />
    ${points.length > 1 && html`<${Scatter} points=${points} xName="newest first" yName="µs" />`}
    ${page && html`<${Table} columns=${["kernel", "what it computes", "tile", "#time", "#10 to 90 of 100", "target", "device", "measured"]}
      empty="No measurement fits." rows=${records.map((one) => [
        one.operator, one.description, html`<code>${tile(one.variant)}</code>`, seconds(one.seconds),
        `${seconds(one.p10)} to ${seconds(one.p90)}`, one.target,
        html`<button type="button" title="Only of ${one.hardware}" onClick=${() => narrow("hardware", one.hardware)}>${one.hardware.slice(-8)}</button>`,
        moment(one.created_at)])} />
      <div class="row">
        ${cursors.length > 0 && html`<button type="button" onClick=${() => setCursors(cursors.slice(0, -1))}>Newer</button>`}
        ${page.next_cursor && html`<button type="button" onClick=${() => setCursors([...cursors, page.next_cursor])}>Older</button>`}
      </div>`}</div>`;
}

export function tile(variant) {
  const levels = Object.entries(variant.levels || {}).map(
    ([level, sizes]) => `${level}(${Object.entries(sizes).map(([axis, size]) => `${axis}:${size}`).join(" ")})`);
  return [variant.algorithm || variant.scheduler || "", ...levels].join(" ");
}
