/* Times a model of model.js on random inputs. */

const RUNS = 30, SECONDS = 3;

/** Fills an array with random elements of the range that an input takes; floats without one are between -1 and 1. Of few legal inputs the first. */
function draw({ dtype, range, examples }, array) {
  if (examples) return array.set(typeof array[0] === "bigint" ? examples[0].map(BigInt) : examples[0]);
  const whole = !dtype.includes("float");
  const [low, high] = dtype === "bool" ? [0, 1] : (range ?? (whole ? [0, 1] : [-1, 1]));
  const from = low ?? Math.min(-1, (high ?? 0) - 1), to = high ?? Math.max(1, from + 1);
  for (let at = 0; at < array.length; at++) {
    const one = from + Math.random() * (to - from + (whole ? 1 : 0));
    array[at] = typeof array[at] === "bigint" ? BigInt(Math.floor(one)) : whole ? Math.floor(one) : one;
  }
}

/** How many threads run a model, in words. */
export const threads = (model) => (model.threads === 1 ? "one thread" : `${model.threads} threads`);

/** The median of the milliseconds of some runs, and how many these were. The page answers between two of them. */
export async function timed(model) {
  model.inputs.forEach((port, at) => draw(port, model.port(at)));
  const times = [];
  const end = performance.now() + 1000 * SECONDS;
  while (times.length < RUNS && (performance.now() < end || times.length < 3)) {
    const started = performance.now();
    model.step();
    times.push(performance.now() - started);
    await new Promise((resolve) => setTimeout(resolve));
  }
  times.sort((a, b) => a - b);
  return { median: times[times.length >> 1], count: times.length };
}
