// A model goes to the service once: whole when it is small or has several files, else in pieces that outlive a broken line.

import { ask, get, Problem, send } from "/web/api.js";

const RESUMABLE_FROM = 8 << 20; // bytes from which on a file goes in pieces
const PIECE = 4 << 20;
const FRUITLESS = 8; // attempts in a row that bring nothing, after which the service counts as gone
const PAUSE_MS = 500;

/** The ONNX file or zip among files that were chosen. Throws Problem when there is none, or several. */
export function modelOf(files) {
  const models = files.filter(({ path }) => isModel(path));
  if (models.length > 1) {
    throw new Problem(0, { detail: `there are ${models.length} models: ${models.map(({ path }) => path).join(", ")}`, fix: "drop one of them, with its files of external data" });
  }
  if (!models.length && files.length > 1) {
    throw new Problem(0, { detail: "none of these files ends in .onnx or .zip", fix: "drop the ONNX file together with its external data" });
  }
  return models[0] || files[0];
}

/** Bring files, {path, file}, to the service; the model's digest. `progress` is told the part that is sent. Throws Problem. */
export async function upload(files, progress) {
  const model = modelOf(files);
  const others = files.filter((one) => one !== model);
  if (!others.length && model.file.size > RESUMABLE_FROM) return inPieces(model, progress);
  const form = new FormData();
  form.append("model", model.file, model.file.name);
  const folder = model.path.slice(0, model.path.lastIndexOf("/") + 1);
  for (const { path, file } of others) form.append("data", file, path.startsWith(folder) ? path.slice(folder.length) : path);
  return (await send("/models", form, progress)).digest;
}

const isModel = (path) => /\.(onnx|zip)$/i.test(path);
const isNoise = (path) => path.split("/").some((part) => part.startsWith(".")); // such as .DS_Store

/** Each piece goes where the service says that the last one ended. Which upload was begun is noted for this tab. */
async function inPieces({ file }, progress) {
  const note = `tilewright-upload-${file.name}-${file.size}-${file.lastModified}`;
  const type = /\.zip$/i.test(file.name) ? "application/zip" : "application/octet-stream";
  let id = sessionStorage.getItem(note);
  let offset = id ? await get(`/uploads/${id}`).then((one) => one.received).catch(() => null) : null;
  let failures = 0;
  for (;;) {
    if (offset === null) {
      const begun = await (await ask("POST", "/uploads", { json: { bytes: file.size, media_type: type } })).json();
      id = begun.id;
      offset = begun.received;
      sessionStorage.setItem(note, id);
    }
    progress(offset / file.size);
    try {
      const answer = await (await ask("PATCH", `/uploads/${id}`, {
        body: file.slice(offset, offset + PIECE), type: "application/octet-stream", headers: { "Upload-Offset": String(offset) },
      })).json();
      if (answer.model) {
        sessionStorage.removeItem(note);
        return answer.model.digest;
      }
      failures = answer.received > offset ? 0 : failures + 1;
      offset = answer.received;
    } catch (problem) {
      const passing = [0, 409, 429, 502, 503, 504].includes(problem.status); // 0: the line broke off
      if (!passing || ++failures >= FRUITLESS) {
        throw problem.status ? problem : new Problem(0, { detail: "the upload broke off", fix: "choose the file again: what arrived is kept" });
      }
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS * failures));
      offset = await get(`/uploads/${id}`).then((one) => one.received).catch((lost) => (lost.status === 404 ? null : offset));
    }
  }
}

/** Those of {path, file} that may belong to a model, the model first. */
const sorted = (files) => files.filter(({ path }) => !isNoise(path)).sort((a, b) => isModel(b.path) - isModel(a.path));

/** The files of a drop, those in dropped folders too, as {path, file}. */
export async function dropped(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry && item.webkitGetAsEntry()).filter(Boolean);
  if (!entries.length) return chosen(transfer.files);
  const found = [];
  const walk = async (entry, prefix) => {
    if (entry.isFile) {
      found.push({ path: prefix + entry.name, file: await new Promise((resolve, reject) => entry.file(resolve, reject)) });
      return;
    }
    const reader = entry.createReader();
    for (;;) { // a reader gives some of a folder's entries at a time, none at its end
      const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
      if (!some.length) return;
      for (const inner of some) await walk(inner, `${prefix}${entry.name}/`);
    }
  };
  for (const entry of entries) await walk(entry, "");
  return sorted(found);
}

/** The files of an input, by their paths in the folder when one was chosen. */
export const chosen = (list) => sorted([...list].map((file) => ({ path: file.webkitRelativePath || file.name, file })));
