// Log in with a password, or at an issuer of tokens.
import { html, useState } from "../lib.js";
import { call, useFetch } from "../api.js";
import { Failure } from "../parts/dialog.js";

export function Login({ onDone }) {
  const [user, setUser] = useState(""), [password, setPassword] = useState("");
  const [error, setError] = useState(null), [busy, setBusy] = useState(false);
  const { data } = useFetch("login");
  const go = async (event) => {
    event.preventDefault();
    setBusy(true);
    try { await call("POST", "login", { body: { user, password }, quiet: true }); setPassword(""); await onDone(); }
    catch (problem) { setError(problem); }
    setBusy(false);
  };
  return html`<main class="login" id="main"><h1><img src="icon.svg" alt="" width="40" height="40" /> EnMasse</h1>
    <form onSubmit=${go}>
      <label>User <input name="user" autocomplete="username" required autofocus value=${user} onInput=${(event) => setUser(event.currentTarget.value)} /></label>
      <label>Password <input name="password" type="password" autocomplete="current-password" required value=${password} onInput=${(event) => setPassword(event.currentTarget.value)} /></label>
      <${Failure} error=${error} />
      <button class="main" disabled=${busy}>${busy ? "Checking …" : "Log in"}</button>
      ${(data?.issuers || []).map((it) => html`<a class="button" href=${it.url}>Log in at ${it.name}</a>`)}
    </form>
    <p class="soft">Users are made with <code>enmasse user add NAME</code>.</p></main>`;
}
