// Tuning measurements: filtered, as points and as a table.

import { html, useState } from "/web/vendor/htm-preact.js";
import { download, get } from "/web/api.js";
import { Scatter } from "/web/charts.js";
import { Act, Failure, Table, moment, seconds, useFetched } from "/web/shown.js";

const FIELDS = [["operator", "Operator"], ["target", "Target"], ["workload", "Workload"], ["job", "Job"]];

export function Records() {
  const [wish, setWish] = useState({ kind: "kernel" });
  const [text, setText] = useState({});
  const query = new URLSearchParams({ limit: "200", ...Object.fromEntries(Object.entries(wish).filter(([, value]) => value)) });
  const [page, error] = useFetched(() => get(`/tuning-records?${query}`), [String(query)]);
  const records = page ? page.records : [];
  const points = records.filter((one) => one.seconds > 0 && one.variant.levels).map((one, at) => [at + 1, 1e6 * one.seconds, `${one.operator}: ${seconds(one.seconds)}`]);
  return html`
    <h1>Measurements</h1>
    <form class="row" onSubmit=${(event) => { event.preventDefault(); setWish({ kind: wish.kind, ...text }); }}>
      <label class="field">Kind <select value=${wish.kind} onChange=${(event) => setWish({ ...wish, kind: event.target.value })}>
        ${["kernel", "plan", "stage", "search", "handover", "machine"].map((one) => html`<option value=${one} selected=${one === wish.kind}>${one}</option>`)}
      </select></label>
      ${FIELDS.map(([name, title]) => html`<label class="field">${title}
        <input value=${text[name] || ""} onInput=${(event) => setText({ ...text, [name]: event.target.value.trim() })} /></label>`)}
      <button>Filter</button>
      <${Act} name="CSV" act=${() => download(`/tuning-records?${query}&format=csv`, "tuning-records.csv")} />
      <${Act} name="Parquet" act=${() => download(`/tuning-records?${query}&format=parquet`, "tuning-records.parquet")} />
    </form>
    <${Failure} error=${error} />
    ${points.length > 1 && html`<${Scatter} points=${points} xName="newest first" yName="µs" />`}
    ${page && html`<${Table} columns=${["kernel", "what it computes", "tile", "#time", "#10 to 90 of 100", "target", "measured"]}
      empty="No measurement fits." rows=${records.map((one) => [
        one.operator, one.description, html`<code>${tile(one.variant)}</code>`, seconds(one.seconds),
        `${seconds(one.p10)} to ${seconds(one.p90)}`, one.target, moment(one.created_at)])} />`}`;
}

function tile(variant) {
  const levels = Object.entries(variant.levels || {}).map(
    ([level, sizes]) => `${level}(${Object.entries(sizes).map(([axis, size]) => `${axis}:${size}`).join(" ")})`);
  return [variant.algorithm || variant.scheduler || "", ...levels].join(" ");
}
