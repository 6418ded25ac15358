// What came of a compilation, in one way on every view: its latency, how it compares, and what may have spoilt the times.

import { html, useEffect, useState } from "/web/vendor/htm-preact.js";
import { Facts, figures, seconds } from "/web/shown.js";

const PEERS = { onnxruntime: "ONNX Runtime", openvino: "OpenVINO" };
const APART = 1.25; // times of the same plan that differ by more were not taken on a machine at rest

/** The race that an artifact has run with the model as it came, if any: `compared` of a job or a report. */
export const raceOf = (compared) => (compared || []).find((one) => one.ours_s);

/** Seconds of one inference: those of the race, in which both took turns, else those of the proof; null where there are none. */
export const latencyOf = ({ compared, latency_s }) => raceOf(compared)?.ours_s ?? (latency_s || null);

/** How many times as fast as another runtime, in a word or two. */
export function Speedup({ compared }) {
  const race = raceOf(compared);
  if (!race || !race.ratio) return "";
  const sure = race.low !== null && (race.low > 1 || race.high < 1);
  return html`<span class=${!sure ? "" : race.low > 1 ? "good" : "bad"} title=${race.said}>${figures(race.ratio)}×</span>`;
}

/** The comparison on top of a job: how many times as fast, with the interval, and both times. */
export function Compared({ compared }) {
  if (!compared || !compared.length) return null;
  return html`<section class="box result" aria-label="Beside other runtimes">${compared.map((one) => {
    const peer = PEERS[one.peer] || one.peer;
    if (!one.ratio) return html`<p>Not raced with ${peer}: ${one.said}</p>`;
    const interval = one.low === null ? `in ${one.rounds} rounds, too few to be sure` : `${figures(one.low)} to ${figures(one.high)} with 95 %, ${one.rounds} rounds in turns`;
    const verdict = one.low === null ? "" : one.low > 1 ? "good" : one.high < 1 ? "bad" : "";
    const words = verdict === "good" ? html`<b class="good">${figures(one.ratio)} times as fast as ${peer}</b>`
      : verdict === "bad" ? html`<b class="bad">Slower than ${peer}: ${figures(one.ratio)} times as fast</b>`
        : html`<b>Cannot tell which is faster, this or ${peer}: ${figures(one.ratio)} times as fast</b>`;
    const most = Math.max(one.ours_s, one.theirs_s);
    const bar = (name, value, kind) => html`<tr><th scope="row">${name}</th>
      <td class="wide"><progress class=${kind} max=${most} value=${value} aria-label=${name}></progress></td>
      <td class="number">${seconds(value)}</td></tr>`;
    return html`<p class="verdict">${words} <span class="quiet">(${interval})</span></p>
      <table class="bars"><tbody>${bar("Tilewright", one.ours_s, "ours")}${bar(`${peer} ${one.version}`, one.theirs_s, "theirs")}</tbody></table>
      <p class="quiet">One inference on ${one.threads} thread${one.threads === 1 ? "" : "s"}, ${peer} with the model as it came.</p>`;
  })}</section>`;
}

/** Every other time that is known of the plan, by what it is; and a word where they are too far apart. */
export function OtherTimes({ report }) {
  const result = latencyOf(report);
  const taken = (report.plans || []).find((one) => one.taken);
  const race = raceOf(report.compared);
  const measured = [
    race && report.latency_s ? ["when the artifact was proved", report.latency_s] : null,
    taken && taken.measured_s ? ["when plans were compared", taken.measured_s] : null,
  ].filter(Boolean);
  const times = [...measured.map(([name, value]) => [`measured ${name}`, seconds(value)]),
    ...(taken ? [["predicted from its kernels' times", seconds(taken.predicted_s)]] : [])];
  const all = [result, ...measured.map(([, value]) => value)].filter(Boolean);
  const spread = Math.max(...all) / Math.min(...all);
  return html`<div>
    ${spread > APART && html`<p class="warn"><b>The machine was busy:</b> the same plan took ${seconds(Math.min(...all))} once
      and ${seconds(Math.max(...all))} another time. ${race ? "Both sides of the race took turns, so that what else ran touched both." : "Compile again when it is at rest for a time to go by."}</p>`}
    ${times.length > 0 && html`<details><summary>Other times of the same plan</summary><${Facts} facts=${times} /></details>`}</div>`;
}

/** How long a job has run and, once that can be told, about how long it will; drawn anew each second. */
export function Elapsed({ job }) {
  const [now, set] = useState(Date.now());
  const running = job.state === "RUNNING" && job.started_at;
  useEffect(() => {
    if (!running) return undefined;
    const timer = setInterval(() => set(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [running]);
  if (!running) return "";
  const elapsed = Math.max(0, (now - Date.parse(job.started_at)) / 1000);
  return html`<span class="quiet id" role="timer">${duration(elapsed)}${leftOf(elapsed, job.fraction)}</span>`;
}

const SOON_S = 4; // before which a job has not shown how fast it goes
const LEAST = 0.05;

/** The part that is left takes as long as the part that is done did. */
export function leftOf(elapsed, fraction) {
  if (elapsed < SOON_S || !(fraction >= LEAST)) return "";
  return fraction >= 1 ? ", nearly done" : `, about ${duration((elapsed * (1 - fraction)) / fraction)} left`;
}

/** Whole seconds, or minutes and seconds. */
export function duration(value) {
  const whole = Math.round(value);
  if (whole < 60) return `${whole} s`;
  return whole < 3600 ? `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s` : `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}
