// The service itself: checks, workers, what the caller may use and, for operators, owners, keys and the audit log.

import { html } from "/web/vendor/htm-preact.js";
import { get } from "/web/api.js";
import { Failure, Table, bytes, figures, moment, useFetched } from "/web/shown.js";

export function Operations({ me }) {
  const [ready] = useFetched(() => get("/readyz", { anyStatus: true }), [], 5);
  const [workers, error] = useFetched(() => get("/workers"), [], 5);
  const [mine] = useFetched(() => get("/me"), [], 5);
  const admin = me.key.scopes.includes("admin");
  return html`
    <h1>Service</h1>
    <${Failure} error=${error} />
    <h2>Checks</h2>
    ${ready && html`<${Table} columns=${["check", "", "detail"]} rows=${ready.checks.map((one) => [
      one.name, html`<span class=${one.ok ? "good" : "bad"}>${one.ok ? "ok" : "failing"}</span>`, one.detail])} />`}
    <h2>Workers</h2>
    ${workers && html`<${Table} columns=${["worker", "device", "#cores", "memory", "busy", "last seen"]} empty="No worker is alive: jobs wait."
      rows=${workers.workers.map((one) => [
        one.name, `${one.hardware.model || one.hardware.device} (${one.hardware.target || ""})`, one.hardware.cores,
        one.hardware.memory_bytes ? bytes(one.hardware.memory_bytes) : "", one.busy ? "yes" : "no", moment(one.last_seen)])} />`}
    <h2>What ${me.owner} uses</h2>
    ${mine && html`<${Table} columns=${["", "#used", "#limit"]} rows=${Object.entries(mine.quotas).map(([name, quota]) => {
      const written = name.endsWith("bytes") ? bytes : figures;
      return [name.replace("_", " "), written(quota.used), quota.limit === null ? "none" : written(quota.limit)];
    })} />`}
    ${admin && html`<${Administration} />`}`;
}

function Administration() {
  const [keys] = useFetched(() => get("/keys?limit=50"), [], 10);
  const [audit] = useFetched(() => get("/audit?limit=30"), [], 10);
  return html`
    <h2>Keys</h2>
    ${keys && html`<${Table} columns=${["owner", "label", "role", "state", "last used"]} rows=${keys.keys.map((one) => [
      one.owner, one.label, one.role, one.state, moment(one.last_used_at)])} />`}
    <h2>Audit</h2>
    ${audit && html`<${Table} columns=${["when", "owner", "did", "to", "outcome"]} rows=${audit.entries.map((one) => [
      moment(one.at || one.created_at), one.owner || "", one.verb, html`<code>${one.object || ""}</code>`, one.outcome])} />`}`;
}
