// The service itself: checks, workers, queues, what the caller may use and, for operators, owners, storage, keys and the audit log.

import { html, useState } from "/web/vendor/htm-preact.js";
import { get, getText } from "/web/api.js";
import { Awaited, Failure, Facts, Table, bytes, figures, moment, seconds, useFetched } from "/web/shown.js";

const OWNERS_PER_PAGE = 20;
const QUOTAS = ["stored_bytes", "queued_jobs", "concurrent_jobs", "device_seconds"];

export function Operations({ me }) {
  const [ready] = useFetched(() => get("/readyz", { anyStatus: true }), [], 5);
  const [workers, error] = useFetched(() => get("/workers"), [], 5);
  const [mine] = useFetched(() => get("/me"), [], 5);
  const [numbers, without] = useFetched(async () => samplesOf(await getText("/metrics")), [], 5);
  const admin = me.key.scopes.includes("admin");
  return html`<div>
    <h1>Service</h1>
    <${Awaited} value=${workers} error=${error} of="what the service says of itself" />
    <h2>Checks</h2>
    ${ready && html`<${Table} columns=${["check", "", "detail"]} rows=${ready.checks.map((one) => [
      one.name, html`<span class=${one.ok ? "good" : "bad"}>${one.ok ? "ok" : "failing"}</span>`, one.detail])} />`}
    <h2>Workers</h2>
    ${workers && html`<${Table} columns=${["worker", "device", "#cores", "memory", "busy", "#seconds worked", "takes", "last seen"]} empty="No worker is alive: jobs wait."
      rows=${workers.workers.map((one) => [
        one.name, `${one.hardware.model || one.hardware.device} (${one.hardware.target || ""})`, one.hardware.cores,
        one.hardware.memory_bytes ? bytes(one.hardware.memory_bytes) : "", one.busy ? "yes" : "no",
        numbers ? figures(sum(numbers, "device_seconds_total", ({ queue }) => one.queues.includes(queue))) : "",
        html`<details><summary>${one.queues.length} queues</summary>${one.queues.join(", ")}</details>`, moment(one.last_seen)])} />`}
    ${workers && workers.workers.length > 1 && html`<p class="quiet">Seconds worked are those of a worker's queues, which others may serve too.</p>`}
    <h2>Queues</h2>
    ${without && html`<p class="quiet">Nothing is known of queues: ${without.message}.</p>`}
    ${numbers && html`<${Queues} numbers=${numbers} workers=${workers ? workers.workers : []} />`}
    <h2>What ${me.owner} uses</h2>
    ${mine && html`<${Table} columns=${["", "#used", "#limit"]} rows=${Object.entries(mine.quotas).map(([name, quota]) => [
      name.replace("_", " "), written(name, quota.used), limit(name, quota)])} />`}
    ${admin && html`<${Owners} /><${Storage} numbers=${numbers} /><${Administration} />`}</div>`;
}

const written = (name, value) => (value === null ? "" : name.endsWith("bytes") ? bytes(value) : figures(value));
const limit = (name, quota) => (quota.limit === null ? "none" : written(name, quota.limit));

/** Samples of Prometheus's text format: {name without the prefix, labels, value}. */
export function samplesOf(text) {
  return text.split("\n").flatMap((line) => {
    const [, name, labels = "", value] = /^tilewright_(\w+?)(?:\{(.*)\})? (\S+)$/.exec(line) || [];
    if (!name) return [];
    return [{ name, value: Number(value), labels: Object.fromEntries([...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map((one) => [one[1], one[2]])) }];
  });
}

function sum(numbers, name, fits = () => true) {
  return numbers.filter((one) => one.name === name && fits(one.labels)).reduce((total, one) => total + one.value, 0);
}

/** Jobs of all owners that wait or run, by queue. */
function Queues({ numbers, workers }) {
  const names = [...new Set(numbers.filter((one) => one.name === "jobs").map((one) => one.labels.queue))].sort();
  const count = (queue, states) => sum(numbers, "jobs", (labels) => labels.queue === queue && states.includes(labels.state));
  return html`<${Table} columns=${["queue", "#waiting", "#running", "#oldest has waited", "#workers"]} empty="No job waits or runs."
    rows=${names.map((queue) => {
      const age = numbers.find((one) => one.name === "queue_age_seconds" && one.labels.queue === queue);
      const serving = workers.filter((one) => one.queues.includes(queue)).length;
      return [queue, count(queue, ["QUEUED"]), count(queue, ["LEASED", "RUNNING"]), age ? seconds(age.value) : "",
        html`<span class=${serving ? "" : "bad"}>${serving}</span>`];
    })} />`;
}

/** What each owner has of what it may have. */
function Owners() {
  const [cursors, setCursors] = useState([]);
  const cursor = cursors[cursors.length - 1];
  const [page, error] = useFetched(async () => {
    const list = await get(`/owners?${new URLSearchParams({ limit: String(OWNERS_PER_PAGE), ...(cursor && { cursor }) })}`);
    return { ...list, owners: await Promise.all(list.owners.map((one) => get(`/owners/${encodeURIComponent(one.name)}`))) };
  }, [cursor]);
  return html`<div>
    <h2>Owners</h2>
    <${Failure} error=${error} />
    ${page && html`<${Table} columns=${["owner", "state", ...QUOTAS.map((name) => `#${name.replace("_", " ")}`)]} rows=${page.owners.map((one) => [
      one.name, html`<span class=${one.state === "active" ? "" : "bad"}>${one.state}</span>`,
      ...QUOTAS.map((name) => written(name, one.quotas[name].used) + (one.quotas[name].limit === null ? "" : ` of ${limit(name, one.quotas[name])}`))])} />
      <div class="row">
        ${cursors.length > 0 && html`<button type="button" onClick=${() => setCursors(cursors.slice(0, -1))}>Earlier owners</button>`}
        ${page.next_cursor && html`<button type="button" onClick=${() => setCursors([...cursors, page.next_cursor])}>More owners</button>`}
      </div>`}</div>`;
}

function Storage({ numbers }) {
  if (!numbers) return null;
  const of = (name, fault) => sum(numbers, name, (labels) => labels.fault === fault);
  return html`<div>
    <h2>Storage</h2>
    <${Facts} facts=${[
      ["measurements kept", figures(sum(numbers, "tuning_records_total"))],
      ["jobs that ended", figures(sum(numbers, "jobs_ended_total"))],
      ["answered from the cache", figures(sum(numbers, "cache_hits_total"))],
      ["files lost", figures(of("blobs_faulty", "lost"))], ["files damaged", figures(of("blobs_faulty", "damaged"))],
    ]} /></div>`;
}

function Administration() {
  const [keys] = useFetched(() => get("/keys?limit=50"), [], 10);
  const [audit] = useFetched(() => get("/audit?limit=30"), [], 10);
  return html`<div>
    <h2>Keys</h2>
    ${keys && html`<${Table} columns=${["owner", "label", "role", "state", "last used"]} rows=${keys.keys.map((one) => [
      one.owner, one.label, one.role, one.state, moment(one.last_used_at)])} />`}
    <h2>Audit</h2>
    ${audit && html`<${Table} columns=${["when", "owner", "did", "to", "outcome"]} rows=${audit.entries.map((one) => [
      moment(one.at || one.created_at), one.owner || "", one.verb, html`<code>${one.object || ""}</code>`, one.outcome])} />`}</div>`;
}
