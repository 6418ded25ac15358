// Links that open one job for whoever has them: made, listed, revoked.

import { html, useState } from "/web/vendor/htm-preact.js";
import { ask, get } from "/web/api.js";
import { Act, Failure, Table, brief, moment, useFetched } from "/web/shown.js";

const DAY_MS = 86400000;

export function Share({ id }) {
  const [page, error, again] = useFetched(() => get(`/jobs/${id}/shares`), [id]);
  const [days, setDays] = useState("7");
  const [file, setFile] = useState(false);
  const [made, setMade] = useState("");
  const make = async () => {
    const ends = new Date(Date.now() + Number(days) * DAY_MS).toISOString();
    const answer = await (await ask("POST", `/jobs/${id}/shares`, { json: { expires_at: ends, download: file } })).json();
    setMade(location.origin + answer.link);
    again();
  };
  const revoke = (one) => async () => { await ask("DELETE", `/jobs/${id}/shares/${one.id}`); again(); };
  return html`<section class="box" aria-label="Share this job">
    <p class="quiet">Whoever has a link sees this job, its graph, schedule and report, without a key, and can change nothing.</p>
    <div class="row">
      <label class="field">Ends in
        <select value=${days} onChange=${(event) => setDays(event.target.value)}>
          ${[["1", "a day"], ["7", "a week"], ["30", "30 days"], ["364", "a year"]].map(
            ([value, text]) => html`<option value=${value} selected=${value === days}>${text}</option>`)}
        </select></label>
      <label><input type="checkbox" checked=${file} onChange=${(event) => setFile(event.target.checked)} /> with the artifact's file</label>
      <${Act} name="Make a link" main=${true} act=${make} />
    </div>
    ${made && html`<p><label class="field">The link, shown this once
      <input id="link" readonly value=${made} size="60" onFocus=${(event) => event.target.select()} /></label>
      <${Act} name="Copy" act=${() => navigator.clipboard.writeText(made)} /></p>`}
    <${Failure} error=${error} />
    ${page && html`<${Table} columns=${["link", "state", "ends", "file", ""]} empty="No link yet." rows=${page.shares.map((one) => [
      html`<code>${brief(one.id)}</code>`, one.state, moment(one.expires_at), one.download ? "yes" : "no",
      one.state === "valid" ? html`<${Act} name="Revoke" act=${revoke(one)} />` : ""])} />`}
  </section>`;
}
