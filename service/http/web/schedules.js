// The plans that were weighed against each other, and when the tasks of any of them run and where its memory lies.

import { html, useState } from "/web/vendor/htm-preact.js";
import { Arena } from "/web/arena.js";
import { download, get } from "/web/api.js";
import { Schedule } from "/web/charts.js";
import { Plans } from "/web/tuning.js";
import { Act, Awaited, Failure, lanesOf, seconds, useFetched } from "/web/shown.js";

const titleOf = (plan) => `${plan.scheduler} on ${lanesOf(plan)}: ${seconds(plan.predicted_s)} predicted, ${
  plan.measured_s === null ? "not run" : `${seconds(plan.measured_s)} measured`}${plan.taken ? "; taken" : ""}`;

export function Schedules({ job }) {
  const [fetched, error] = useFetched(() => get(`/jobs/${job.id}/report`), [job.id]);
  const plans = fetched && fetched.report ? fetched.report.plans : [];
  const [chosen, choose] = useState(null); // the number of a plan; null: the one that was taken
  const taken = plans.findIndex((plan) => plan.taken);
  const number = chosen === null || chosen === taken ? null : chosen;
  return html`
    <${Failure} error=${error} />
    ${plans.length > 0 && html`<h2>Candidates</h2><${Plans} plans=${plans} />`}
    <h2>Timeline</h2>
    <div class="row">
      ${plans.length > 1 && html`<label class="field">Of the plan
        <select name="plan" onChange=${(event) => choose(Number(event.target.value))}>
          ${plans.map((plan, at) => html`<option value=${at} selected=${at === (number ?? taken)}>${titleOf(plan)}</option>`)}
        </select></label>`}
      <${Act} name="Trace for Perfetto" act=${() => download(`${job.links.artifact}/trace`, `${job.artifact_id}.trace.json`)} />
    </div>
    <${Times} path=${`${job.links.artifact}/plan${number === null ? "" : `?candidate=${number}`}`} />`;
}

function Times({ path }) {
  const [plan, error] = useFetched(() => get(path), [path]);
  if (!plan) return html`<${Awaited} value=${plan} error=${error} of="the plan" />`;
  return html`<${Schedule} plan=${plan} key=${path} /><${Arena} plan=${plan} key=${`${path} memory`} />`;
}
