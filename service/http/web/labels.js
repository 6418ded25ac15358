// Names, tags and notes of jobs and models: shown, and changed in place.

import { html, useState } from "/web/vendor/htm-preact.js";
import { ask } from "/web/api.js";
import { Act } from "/web/shown.js";

const APART = /[\s,]+/;

/** What `one`, a job or model at `path`, is called; with a form to change it unless it is `fixed`. `again` asks for it anew. */
export function Labels({ what, path, one, again, fixed = false }) {
  const [text, setText] = useState(null); // what is typed, while the form is open
  const change = (name) => (event) => setText({ ...text, [name]: event.target.value });
  const save = async () => {
    const json = { name: text.name.trim() || null, note: text.note.trim() || null, tags: text.tags.split(APART).filter(Boolean) };
    await ask("PATCH", path, { json });
    await again();
    setText(null);
  };
  const open = () => setText({ name: one.name || "", note: one.note || "", tags: one.tags.join(" ") });
  if (!text) {
    return html`<div class="row labels">
      ${one.name && what !== "job" && html`<strong>${one.name}</strong>`}<${Tags} tags=${one.tags} />
      ${one.note && html`<span class="note">${one.note}</span>`}
      ${!fixed && html`<button type="button" onClick=${open}>Name the ${what}</button>`}</div>`;
  }
  return html`<form class="box" aria-label="Name the ${what}" onSubmit=${(event) => event.preventDefault()}>
    <div class="row">
      <label class="field">Name <input name="name" maxlength="200" value=${text.name} onInput=${change("name")} /></label>
      <label class="field">Tags, apart by spaces <input name="tags" value=${text.tags} onInput=${change("tags")} /></label>
      <label class="field">Note <textarea name="note" rows="2" cols="40" value=${text.note} onInput=${change("note")}></textarea></label>
    </div>
    <div class="row"><${Act} name="Save" main=${true} act=${save} /><button type="button" onClick=${() => setText(null)}>Leave as it was</button></div>
  </form>`;
}

export const Tags = ({ tags }) => tags.map((tag) => html`<span class="tag" key=${tag}>${tag}</span>`);
