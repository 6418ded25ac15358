// What somebody sees who has not signed in: what this is, and the two ways in.

import { html, useState } from "/web/vendor/htm-preact.js";
import { signIn } from "/web/api.js";
import { Failure, useTitle } from "/web/shown.js";

export function Welcome({ error, entered }) {
  useTitle("Sign in");
  const [text, setText] = useState("");
  const [asking, ask] = useState(false);
  const [problem, setProblem] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    setProblem(null);
    try {
      await signIn(text.trim());
      await entered();
    } catch (refused) {
      setProblem(refused);
    }
  };
  return html`<main tabindex="-1">
    <h1>Tilewright</h1>
    <p>Send an ONNX model, get back one file that runs it fast, with proof that it computes the same.</p>
    <${Failure} error=${problem || error} />
    <p>Open the link that <code>tilewright up</code> printed: it signs this browser in, once.</p>
    ${asking ? html`<form onSubmit=${submit} class="row">
      <label class="field">API key
        <input id="key" type="password" autocomplete="off" size="44" value=${text} onInput=${(event) => setText(event.target.value)} />
      </label>
      <button class="main">Sign in</button>
    </form>
    <p class="quiet">A service on your own machine keeps its key in the file <code>api_key</code> of its data folder. The browser
      keeps a session and not the key; it ends when you sign out, or after a week.</p>`
    : html`<p><button type="button" onClick=${() => ask(true)}>Use a key</button></p>`}
  </main>`;
}
