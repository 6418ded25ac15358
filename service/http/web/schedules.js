// The plans that were weighed against each other, and when the tasks of any of them run and where its memory lies.

import { html, useState } from "/web/vendor/htm-preact.js";
import { Arena } from "/web/arena.js";
import { download, get } from "/web/api.js";
import { Schedule } from "/web/charts.js";
import { Act, Awaited, Failure, Table, figures, lanesOf, seconds, useFetched } from "/web/shown.js";

const titleOf = (plan) => `${plan.scheduler} on ${lanesOf(plan)}: ${seconds(plan.predicted_s)} predicted, ${
  plan.measured_s === null ? "not run" : `${seconds(plan.measured_s)} measured`}${plan.taken ? "; taken" : ""}`;

const WORTH = 1.25; // times the prediction of the first plan, up to which a plan is run (HOPE of compiler/steps/plans.py)

/** Why a plan was taken, or was not: only one that is certainly faster than the sequential plan, the first, replaces it. */
export function reasonOf(plan, plans) {
  const faster = plans.filter((one) => one.measured_s !== null && plan.measured_s !== null && one.measured_s < plan.measured_s);
  const certainly = plan.high !== null && plan.high < 1;
  if (plan.taken) {
    if (plan !== plans[0] && certainly) return `certainly faster than the sequential plan: ${figures(100 * (1 - plan.ratio))} % less time${faster.length ? ", and the most, round by round" : ""}`;
    if (plan.measured_s === null) return "nothing was run that is certainly faster";
    if (faster.length) return `${faster.map((one) => one.scheduler).join(" and ")} took less time, but not certainly, round by round`;
    if (plans.length === 1) return "the only plan";
    return plans.some((one) => one !== plan && one.measured_s !== null) ? "none was certainly faster" : "no other was run";
  }
  if (plan.measured_s === null) {
    const times = plan.predicted_s / plans[0].predicted_s;
    return times > WORTH ? `predicted to take ${figures(times)} times as long as the first: not worth a run` : "not run: no time was left, or it is like one that was";
  }
  if (plan === plans[0]) return "another was certainly faster";
  if (plan.ratio === null) return "not compared in rounds";
  if (!certainly) return plan.low !== null && plan.low > 1 ? "certainly slower than the sequential plan" : "not certainly faster than the sequential plan";
  return "certainly faster than the sequential plan, by less than the one that was taken";
}

/** Plans for the whole model: what each was expected to take, what it took, and why it was taken or was not. */
function Plans({ plans }) {
  return html`<${Table} columns=${["", "scheduler", "#lanes", "#predicted", "#measured", "#of the sequential plan's time", "why"]} rows=${plans.map((plan) => [
    plan.taken ? html`<strong class="good">taken</strong>` : "", plan.scheduler, plan.lanes, seconds(plan.predicted_s),
    plan.measured_s === null ? "not run" : seconds(plan.measured_s),
    plan.ratio === null || plan === plans[0] ? "" : `${figures(plan.ratio)} (${figures(plan.low)} to ${figures(plan.high)})`,
    reasonOf(plan, plans),
  ])} />`;
}

export function Schedules({ job }) {
  const [fetched, error] = useFetched(() => get(`/jobs/${job.id}/report`), [job.id]);
  const plans = fetched && fetched.report ? fetched.report.plans : [];
  const [chosen, choose] = useState(null); // the number of a plan; null: the one that was taken
  const taken = plans.findIndex((plan) => plan.taken);
  const number = chosen === null || chosen === taken ? null : chosen;
  return html`<div>
    <${Failure} error=${error} />
    ${plans.length > 0 && html`<h2>Plans</h2>
    <p class="quiet">The whole model under each plan, in rounds that took turns. What the artifact takes in the end is on the overview.</p>
    <${Plans} plans=${plans} />`}
    <h2>Timeline</h2>
    <div class="row">
      ${plans.length > 1 && html`<label class="field">Of the plan
        <select name="plan" onChange=${(event) => choose(Number(event.target.value))}>
          ${plans.map((plan, at) => html`<option value=${at} selected=${at === (number ?? taken)}>${titleOf(plan)}</option>`)}
        </select></label>`}
      <${Act} name="Trace for Perfetto" act=${() => download(`${job.links.artifact}/trace`, `${job.artifact_id}.trace.json`)} />
    </div>
    <${Times} path=${`${job.links.artifact}/plan${number === null ? "" : `?candidate=${number}`}`} /></div>`;
}

function Times({ path }) {
  const [plan, error] = useFetched(() => get(path), [path]);
  if (!plan) return html`<${Awaited} value=${plan} error=${error} of="the plan" />`;
  return html`<${Schedule} plan=${plan} key=${path} /><${Arena} plan=${plan} key=${`${path} memory`} />`;
}
