// Why an artifact is fast: what each step of its compilation made of the model, in figures, with where to see it.

import { html } from "/web/vendor/htm-preact.js";
import { get } from "/web/api.js";
import { Failure, Table, figures, lanesOf, seconds, useFetched } from "/web/shown.js";

const MOST_NAMED = 4;

/** The commonest of `names` with how often each is there, commonest first. */
function commonest(names) {
  const counts = new Map();
  for (const name of names) counts.set(name, (counts.get(name) || 0) + 1);
  const sorted = [...counts].sort((a, b) => b[1] - a[1]);
  const more = sorted.length - MOST_NAMED;
  return sorted.slice(0, MOST_NAMED).map(([name, count]) => `${name} ${count}`).join(", ") + (more > 0 ? `, and ${more} more` : "");
}

export function Why({ job, report, base }) {
  const paths = [`${job.links.artifact}/graph`, `${job.links.artifact}/plan`, `/jobs/${job.id}/tuning`];
  const [fetched, error] = useFetched(() => Promise.all(paths.map((path) => get(path))), [job.id]);
  if (!fetched) return html`<${Failure} error=${error} />`;
  const [graph, plan, tuning] = fetched;
  const applied = graph.steps.flatMap((step) => step.applied.map((one) => one.what.split(" ")[0]));
  const sum = (of) => tuning.kernels.reduce((total, kernel) => total + kernel.uses * of(kernel), 0);
  const [first, best] = [sum((kernel) => kernel.candidates[0].measured_s), sum((kernel) => kernel.best_s)];
  const algorithms = plan.calls.map((call) => call.blocking?.algorithm).filter(Boolean);
  const run = report.plans.filter((one) => one.measured_s !== null);
  const taken = report.plans.find((one) => one.taken);
  const planned = taken && `${taken.scheduler} on ${lanesOf(taken)}`;
  const rows = [
    ["graph", "the graph was rewritten", applied.length ? `${applied.length} rule${applied.length > 1 ? "s" : ""} fired` : "no rule fitted", commonest(applied)],
    ["graph", "operators were joined into kernels", `${report.nodes} operators, ${report.kernels} kernels`, "what flows between the operators of one kernel stays out of memory"],
    algorithms.length > 0 && ["kernels", "each kernel got an algorithm and a tile", `${new Set(plan.calls.map((call) => call.tile)).size} different ones`, commonest(algorithms)],
    first > 0 && ["tuning", "tiles were measured here", `${seconds(first)} by the first tile tried, ${seconds(best)} by the best: ${figures(first / best)} times as fast`,
      `all that was measured of ${tuning.kernels.length} kernels, one after the other on one lane`],
    taken && ["schedule", "plans were weighed", `${report.plans.length} plans, ${run.length} of them run`,
      taken.ratio === null ? `${planned} was chosen` : taken.ratio === 1 ? `none was certainly faster than ${planned}`
        : `${planned} takes ${figures(taken.ratio)} of the sequential one's time`],
  ].filter(Boolean);
  return html`<h2>What made it fast</h2>
    <${Table} columns=${["what was done", "figures", "of which", ""]} rows=${rows.map(([tab, what, number, note]) => [what, number, note,
      html`<a href="${base}/${tab}" aria-label=${`see: ${what}`}>see</a>`])} />`;
}
