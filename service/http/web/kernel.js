// One kernel of an artifact: its code, and what was measured of kernels like it.

import { html } from "/web/vendor/htm-preact.js";
import { get, getText } from "/web/api.js";
import { tile } from "/web/records.js";
import { Failure, Table, moment, seconds, useFetched } from "/web/shown.js";

const MOST_RECORDS = 50;
const DEFINED = /^(?:\/\*|(?!#|typedef|enum|struct)[a-z_].*\b(k\d+_\w+)\()/; // a line that begins a function, or its comment

/** The function that the host's source calls for each call of its first plan; empty where it has no such table. */
export function functionsOf(host) {
  const [, table = ""] = /struct call calls_1\[\d+\] = \{([^;]*)\};/.exec(host) || [];
  return [...table.matchAll(/\{(\w+), \d+\}/g)].map((one) => one[1]);
}

/** The definitions of a function, and of those that only it calls, whose names begin with its name. */
export function definitionOf(name, source) {
  const parts = [];
  for (const line of source.split("\n")) {
    const begins = DEFINED.exec(line);
    const last = parts[parts.length - 1];
    if (begins && !(last && !last.name)) parts.push({ name: begins[1], lines: [] });
    else if (begins && last) last.name = begins[1];
    if (parts.length) parts[parts.length - 1].lines.push(line);
  }
  return parts.filter((one) => one.name && (one.name === name || one.name.startsWith(`${name}_`))).map((one) => one.lines.join("\n").trimEnd()).join("\n\n");
}

async function codeOf(job, number) {
  const { files } = await get(`${job.links.artifact}/files`);
  const names = files.map((file) => file.name).filter((one) => /^source\/.*\.(c|cu)$/.test(one));
  const texts = await Promise.all(names.map((one) => getText(`${job.links.artifact}/${one}`)));
  const called = texts.map(functionsOf).find((one) => one.length) || [];
  const name = called[number] || (new RegExp(`\\b(k${number}_\\w+)\\(void`).exec(texts.join("\n")) || [])[1];
  return { name, text: name ? texts.map((one) => definitionOf(name, one)).filter(Boolean).join("\n\n") : "" };
}

export function Code({ job, number }) {
  const [code, error] = useFetched(() => codeOf(job, number), [job.id, number]);
  return html`<h2>Source</h2><${Failure} error=${error} />
    ${code && (code.text ? html`<p class="quiet"><code>${code.name}</code></p><pre tabindex="0" data-kernel=${code.name}>${code.text}</pre>`
    : html`<p class="quiet">Its code stands in none of the artifact's functions by itself: see the sources.</p>`)}`;
}

/** What this job's model has had measured of kernels of the same operators; the tile that was taken is marked. */
export function Measured({ job, call }) {
  const query = new URLSearchParams({ kind: "kernel", operator: call.family, model: job.model, limit: String(MOST_RECORDS) });
  const [page, error] = useFetched(() => get(`/tuning-records?${query}`), [String(query)]);
  const taken = (one) => call.blocking && JSON.stringify(one.variant.levels) === JSON.stringify(call.blocking.levels) && one.variant.algorithm === call.blocking.algorithm;
  return html`<h2>Measurements</h2><${Failure} error=${error} />
    ${page && html`<${Table} columns=${["", "what it computes", "tile", "#time", "#lanes", "measured"]}
      empty="None for this model: its tile is the cost model's choice, or was measured for another model."
      rows=${[...page.records].sort((a, b) => a.seconds - b.seconds).map((one) => [
        taken(one) ? html`<strong class="good">as taken</strong>` : "", one.description, html`<code>${tile(one.variant)}</code>`,
        seconds(one.seconds), one.threads, moment(one.created_at)])} />
      ${page.next_cursor && html`<p class="quiet">The newest ${MOST_RECORDS}; the others are among the <a href="#/records">measurements</a>.</p>`}`}`;
}
