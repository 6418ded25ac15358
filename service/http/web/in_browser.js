// An artifact for browsers, run in this one. Loaded where somebody asks for that.

import { ask } from "/web/api.js";
import { threads, timed } from "/web/browser/demo.js";
import { create } from "/web/browser/model.js";
import { seconds } from "/web/shown.js";

const STORED = 0, END = 0x06054b50, END_BYTES = 22;

/** Members of a zip archive (APPNOTE.TXT 4.3) by name. Throws an Error that names one that is missing. */
export async function members(archive, names) {
  const view = new DataView(archive), found = {};
  let end = archive.byteLength - END_BYTES;
  while (end >= 0 && view.getUint32(end, true) !== END) end--;
  if (end < 0) throw new Error("the artifact is no whole archive");
  let at = view.getUint32(end + 16, true);
  for (let left = view.getUint16(end + 10, true); left > 0; left--) {
    const [method, bytes, length] = [view.getUint16(at + 10, true), view.getUint32(at + 20, true), view.getUint16(at + 28, true)];
    const name = new TextDecoder().decode(new Uint8Array(archive, at + 46, length));
    if (names.includes(name)) {
      const local = view.getUint32(at + 42, true);
      const begin = local + 30 + view.getUint16(local + 26, true) + view.getUint16(local + 28, true);
      found[name] = await inflated(new Uint8Array(archive, begin, bytes), method);
    }
    at += 46 + length + view.getUint16(at + 30, true) + view.getUint16(at + 32, true);
  }
  const missing = names.find((name) => !(name in found));
  if (missing) throw new Error(`the artifact has no ${missing}`);
  return found;
}

async function inflated(content, method) {
  if (method === STORED) return content;
  const stream = new Blob([content]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Fetches an artifact, runs it on random inputs, and says how long a run takes here. */
export async function timedHere(artifact) {
  const archive = await (await ask("GET", artifact)).arrayBuffer();
  const files = await members(archive, ["manifest.json", "model.wasm", "weights.bin"]);
  const manifest = JSON.parse(new TextDecoder().decode(files["manifest.json"]));
  const model = await create(manifest, files["model.wasm"], files["weights.bin"]);
  const { median, count } = await timed(model);
  model.close();
  return `${seconds(median / 1000)} a run in this browser: the median of ${count}, on random inputs and ${threads(model)}`;
}
