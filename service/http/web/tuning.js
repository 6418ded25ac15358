// How the search for tiles went, or goes: the best so far over time, what was expected beside what was measured.

import { html, useEffect, useMemo, useState } from "/web/vendor/htm-preact.js";
import { get } from "/web/api.js";
import { LEFT, TimeAxis, WIDTH, ticks } from "/web/charts.js";
import { Awaited, Facts, Table, colour, figures, lanesOf, seconds, useFetched } from "/web/shown.js";

const ENDED = ["SUCCEEDED", "FAILED", "CANCELLED"];
const SOON_MS = 300; // events come in bursts: they are asked for together

/** `reports` counts the events that the job has sent of its search: with each the search is asked for again. */
export function Tuning({ job, reports, base }) {
  const [tuning, error, again] = useFetched(() => get(`/jobs/${job.id}/tuning`), [job.id]);
  useEffect(() => {
    const due = setTimeout(again, SOON_MS);
    return () => clearTimeout(due);
  }, [reports, job.state]);
  const [chosen, choose] = useState("");
  const ended = ENDED.includes(job.state);
  const [made] = useFetched(() => (ended && job.state === "SUCCEEDED" && job.kind === "compile" ? get(`/jobs/${job.id}/report`) : null), [job.id, job.state]);
  const plans = made && made.report ? made.report.plans : [];
  if (!tuning) return html`<${Awaited} value=${tuning} error=${error} of="what was measured" />`;
  if (!tuning.points.length) return html`<p class="quiet">${ended
    ? "No kernel was measured for this job: what it needs was known from earlier ones, its tuning budget was spent or 0, or its target is elsewhere." : "No measurement yet."}</p>`;
  const last = tuning.points[tuning.points.length - 1];
  const kernels = [...tuning.kernels].sort((a, b) => b.uses * b.best_s - a.uses * a.best_s);
  return html`<div>
    <${Facts} facts=${[
      ["all kernels, one after the other", seconds(last.best_s)],
      ["candidates measured", `${figures(last.measured)} of ${figures(tuning.legal)}`],
      ["of the budget", `${figures(100 * last.spent)} %`],
      ["the next candidates may save", last.exhausted ? "nothing worth measuring"
        : last.expected_gain_s === null ? "not known yet" : `${seconds(last.expected_gain_s)}, by ${last.promising}`],
      ["the rest of the budget", ended ? "" : restOf(last, tuning.forecast)],
    ]} />
    <h2>Best so far</h2>
    <${Curve} tuning=${tuning} taken=${plans.find((plan) => plan.taken)} />
    <p class="quiet"><span class="key solid"></span> each kernel by its best tile known so far, one after the other on one lane${last.unmeasured_kernels
      ? `, ${last.unmeasured_kernels} of them only by the cost model` : ""}.
      ${" "}${tuning.forecast && html`<span class="key dashed"></span> what the rest of the budget is expected to bring: each candidate that is worth
      measuring now saves what is expected of it; what it teaches about others is not foreseen. `}
      ${tuning.points.some((point) => point.expected_s !== null) && html`<span class="key dotted"></span> what the end of the budget was expected to
      bring, as estimated at each time. `}
      ${tuning.plans.length > 0 && html`<span class="key diamond"></span> a plan for the whole model, on its lanes; filled: the one that was taken.`}</p>
    ${plans.length > 0 && html`<p class="quiet">Several lanes may be faster than all kernels one after the other: <a href="${base}/schedule">plans beside each other</a>.</p>`}
    <h2>Predicted and measured</h2>
    <p class="quiet">Each candidate by what was expected of it before its kernel was measured, and by what it took; plans are
      diamonds. Choose a kernel below to see it alone.</p>
    <${Forecast} kernels=${chosen ? kernels.filter((one) => one.workload === chosen) : kernels} plans=${chosen ? [] : plans} />
    <${Table} columns=${["kernel", "#calls", "#candidates", "#first", "#best", "#best / first", "#measured / predicted"]} rows=${kernels.map((one) => [
      html`<button type="button" aria-pressed=${one.workload === chosen} onClick=${() => choose(one.workload === chosen ? "" : one.workload)}>
        <span style=${{ color: colour(one.operator) }} aria-hidden="true">●</span> ${one.operator}</button>`,
      one.uses, one.candidates.filter((candidate) => !candidate.again).length, seconds(one.candidates[0].measured_s), seconds(one.best_s),
      figures(one.best_s / one.candidates[0].measured_s), figures(middle(one.candidates.map((each) => each.measured_s / each.predicted_s)))])} /></div>`;
}

/** What is left of the budget, and what measuring on is expected to bring, by the API's forecast. */
function restOf(last, forecast) {
  if (last.exhausted || last.spent >= 1) return "nothing more is expected of it";
  if (!forecast) return `${figures(100 * (1 - last.spent))} % is left; what it brings is known once each kernel was measured`;
  const end = forecast[forecast.length - 1];
  const count = end.measured - last.measured;
  return `about ${seconds(end.elapsed_s - last.elapsed_s)}, ${figures(count)} candidate${count === 1 ? "" : "s"}: ${seconds(end.best_s)} expected at its end`;
}

function middle(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor((sorted.length - 1) / 2)];
}

/**
 * Steps of the best so far, what is expected of the rest of the budget, and the plans that were run after it. Searches of one
 * job that follow each other stand one after the other.
 */
function Curve({ tuning: { points, forecast, plans }, taken }) {
  const height = 280;
  const [at, begun] = useMemo(() => {
    let [start, before] = [0, 0];
    const times = points.map((point) => {
      if (point.attempt_began_again) start += before;
      before = point.elapsed_s;
      return start + point.elapsed_s;
    });
    return [times, start];
  }, [points]);
  const last = points[points.length - 1];
  const ahead = (forecast || []).map((one) => [begun + one.elapsed_s, one.best_s]);
  const estimates = points.map((point, n) => [at[n], point.expected_s]).filter(([, value]) => value !== null);
  const run = plans.map((plan) => ({ ...plan, x: Math.max(plan.elapsed_s, 0), chosen: taken && plan.scheduler === taken.scheduler && plan.lanes === taken.lanes }));
  const most = (values) => values.reduce((high, value) => Math.max(high, value), 0);
  const span = Math.max(at[at.length - 1], most(ahead.map(([time]) => time)), 1.02 * most(run.map((plan) => plan.x)), 1e-3);
  const top = 1.08 * most([...points.map((point) => point.best_s), ...run.map((plan) => plan.measured_s)]);
  const x = (value) => LEFT + ((WIDTH - LEFT - 10) * value) / span;
  const y = (value) => height - 24 - ((height - 34) * value) / top;
  const line = (places) => places.map(([time, value], n) => `${n ? "L" : "M"}${x(time)} ${y(value)}`).join(" ");
  const path = points.map((point, n) => (n ? `H${x(at[n])} V${y(point.best_s)}` : `M${x(at[n])} ${y(point.best_s)}`)).join(" ");
  const [end, expected] = ahead[ahead.length - 1] || [];
  return html`<svg class="chart" viewBox="0 0 ${WIDTH} ${height}" role="img" data-points=${points.length} data-forecast=${ahead.length}
    aria-label="Best latency so far over the time of the search: from ${seconds(points[0].best_s)} to ${seconds(last.best_s)} in ${seconds(at[at.length - 1])}">
    <${TimeAxis} most=${span} height=${height} x=${x} />
    ${ticks(top, 4).map((one) => html`<line class="grid" x1=${LEFT} x2=${WIDTH - 10} y1=${y(one)} y2=${y(one)} />
      <text class="axis" x=${LEFT - 6} y=${y(one) + 4} text-anchor="end">${seconds(one)}</text>`)}
    <path class="edge forecast" d=${line(estimates)} />
    <path class="edge lit" d=${path} />
    ${ahead.length > 0 && html`<path class="edge roof" d=${line(ahead)} />
      ${end > at[at.length - 1] && html`<line class="edge forecast" x1=${x(end)} x2=${x(end)} y1="10" y2=${height - 24} />
        <text class="axis" x=${x(end) - 6} y=${Math.max(y(expected) - 8, 22)} text-anchor="end">${seconds(expected)} expected at the budget's end</text>`}`}
    ${points.map((point, n) => html`<circle class="dot" r="3" cx=${x(at[n])} cy=${y(point.best_s)}>
      <title>${seconds(at[n])}: ${seconds(point.best_s)}, ${point.measured} candidates${point.expected_s === null ? "" : `; ${seconds(point.expected_s)} expected at the budget's end`}</title></circle>`)}
    ${run.map((plan) => html`<path class="plan ${plan.chosen ? "taken" : ""}" d=${diamond(x(plan.x), y(plan.measured_s))}>
      <title>${plan.scheduler} on ${lanesOf(plan)}: ${seconds(plan.measured_s)}${plan.ratio === null ? "" : `, ${figures(plan.ratio)} of sequential`}${plan.chosen ? "; taken" : ""}</title></path>`)}
    ${run.filter((plan) => plan.chosen).map((plan) => html`<text x=${x(plan.x) - 10} y=${y(plan.measured_s) + 4} text-anchor="end">${plan.scheduler}: ${seconds(plan.measured_s)}</text>`)}
  </svg>`;
}

const diamond = (x, y) => `M${x} ${y - 6} l6 6 l-6 6 l-6 -6 Z`;

/** Candidates, and plans that were run, on equal logarithmic axes: on the line the forecast was right. */
function Forecast({ kernels, plans }) {
  const height = 380;
  const points = kernels.flatMap((kernel) => kernel.candidates.map((one) => ({ ...one, kernel })));
  const run = plans.filter((plan) => plan.measured_s && plan.predicted_s);
  const all = [...points, ...run].flatMap((one) => [one.predicted_s, one.measured_s]);
  const low = Math.floor(Math.log10(all.reduce((a, b) => Math.min(a, b))));
  const high = Math.ceil(Math.log10(all.reduce((a, b) => Math.max(a, b))) + 1e-9);
  const part = (value) => (Math.log10(value) - low) / Math.max(1, high - low);
  const x = (value) => LEFT + part(value) * (WIDTH - LEFT - 10);
  const y = (value) => height - 24 - part(value) * (height - 34);
  const decades = Array.from({ length: high - low + 1 }, (_, n) => 10 ** (low + n));
  return html`<svg class="chart" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="Measured over predicted seconds of ${points.length} measurements">
    ${decades.map((one) => html`<line class="grid" x1=${x(one)} x2=${x(one)} y1="10" y2=${height - 24} />
      <text class="axis" x=${x(one)} y=${height - 8} text-anchor=${one === decades[decades.length - 1] ? "end" : "middle"}>${seconds(one)}</text>
      <line class="grid" x1=${LEFT} x2=${WIDTH - 10} y1=${y(one)} y2=${y(one)} />
      <text class="axis" x=${LEFT - 6} y=${y(one) + 4} text-anchor="end">${seconds(one)}</text>`)}
    <path class="edge roof" d="M${x(10 ** low)} ${y(10 ** low)} L${x(10 ** high)} ${y(10 ** high)}" />
    ${points.map((one) => html`<circle class="dot forecast" r="4" cx=${x(one.predicted_s)} cy=${y(one.measured_s)} style=${{ fill: colour(one.kernel.operator) }}>
      <title>${one.kernel.operator}, candidate ${one.candidate}: ${seconds(one.predicted_s)} predicted, ${seconds(one.measured_s)} measured</title></circle>`)}
    ${run.map((plan) => html`<path class="plan ${plan.taken ? "taken" : ""}" d=${diamond(x(plan.predicted_s), y(plan.measured_s))}>
      <title>the plan ${plan.scheduler} on ${lanesOf(plan)}: ${seconds(plan.predicted_s)} predicted, ${seconds(plan.measured_s)} measured</title></path>`)}
    <text class="axis" x=${WIDTH - 10} y=${height - 30} text-anchor="end">predicted</text>
    <text class="axis" x=${LEFT + 6} y="20">measured</text>
  </svg>`;
}
