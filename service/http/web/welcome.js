// What somebody sees who has not signed in: what this is, the two ways in, and what comes out.

import { html, useState } from "/web/vendor/htm-preact.js";
import { signIn } from "/web/api.js";
import { Failure, useTitle } from "/web/shown.js";
import { About, Outcome } from "/web/start.js";

export function Welcome({ error, entered }) {
  useTitle("Sign in");
  return html`<header><strong><img src="/web/icon.svg" alt="" width="18" height="18" /> Tilewright</strong><a class="far" href="/docs">API</a></header>
    <main tabindex="-1">
    <${About} />
    <${Failure} error=${error} />
    <section class="box" aria-label="Sign in">
      <p>Nobody is signed in here. Open the link that <code>tilewright up</code> printed: it signs this browser in, once.</p>
      <${Key} entered=${entered} />
    </section>
    <${Outcome} />
  </main>`;
}

function Key({ entered }) {
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
  if (!asking) return html`<p><button type="button" onClick=${() => ask(true)}>Use a key</button></p>`;
  return html`<form onSubmit=${submit} class="row">
      <label class="field">API key
        <input id="key" type="password" autocomplete="off" size="44" value=${text} onInput=${(event) => setText(event.target.value)} />
      </label>
      <button class="main">Sign in</button>
    </form>
    <${Failure} error=${problem} />
    <p class="quiet">A service on your own machine keeps its key in the file <code>api_key</code> of its data folder. The browser
      keeps a session and not the key; it ends when you sign out, or after a week.</p>`;
}
