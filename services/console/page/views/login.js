// Log in with a password, or at an issuer of OpenID Connect.
import { html, useState } from "../lib.js";
import { call, path, useFetch } from "../api.js";
import { Failure } from "../parts/dialog.js";
import { keepPlace } from "../parts/route.js";

const FAILURES = {
  denied: "The issuer has not logged you in.",
  refused: "The issuer's answer proves no user of this suite.",
  stale: "This login was begun in another window, or too long ago. Log in again.",
  unavailable: "The issuer cannot be asked now. Try again; the component authserv shows the reason.",
};
const failed = FAILURES[new URLSearchParams(location.search).get("login")];
if (location.search) history.replaceState(null, "", location.pathname + location.hash);

export function Login({ onDone }) {
  const [user, setUser] = useState(""),
    [password, setPassword] = useState("");
  const [error, setError] = useState(failed ? { message: failed } : null),
    [busy, setBusy] = useState(false);
  const { data, error: problem } = useFetch("login");
  const attempt = async (action) => {
    setBusy(true);
    setError(null);
    try {
      await action();
    } catch (/** @type {any} */ found) {
      setError(found);
    }
    setBusy(false);
  };
  const go = (event) => {
    event.preventDefault();
    attempt(async () => {
      await call("POST", "login", { body: { user, password }, quiet: true });
      setPassword("");
      await onDone();
    });
  };
  const goTo = (issuer) =>
    attempt(async () => {
      const { body } = await call("POST", path("login", "issuers", issuer), { quiet: true });
      keepPlace();
      location.assign(body.url);
    });
  const issuers = data?.issuers || [];
  return html`<main class="login" id="main"><h1><img src="icon.svg" alt="" width="40" height="40" /> EnMasse</h1>
    <form onSubmit=${go}>
      <label>User <input name="user" autocomplete="username" required autofocus value=${user}
        onInput=${(event) => setUser(event.currentTarget.value)} /></label>
      <label>Password <input name="password" type="password" autocomplete="current-password" required value=${password}
        onInput=${(event) => setPassword(event.currentTarget.value)} /></label>
      <${Failure} error=${error || problem} />
      <button class="main" disabled=${busy}>${busy ? "Checking …" : "Log in"}</button>
      ${issuers.map(
        (name) => html`<button type="button" key=${name} disabled=${busy}
        onClick=${() => goTo(name)}>Log in with ${name}</button>`,
      )}
    </form>
    <p class="soft">Users are made with <code>enmasse user add NAME</code>
    ${issuers.length > 0 && ", or at the issuer"}.</p></main>`;
}
