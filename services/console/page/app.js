// The frame of the page: login, navigation, and the view that the place names.
import { html, render, useEffect, useState } from "./lib.js";
import { ApiError, SPACE, call, get, keepToken, onLogout, useFetch } from "./api.js";
import { Notices, notice } from "./parts/dialog.js";
import { Missing } from "./parts/state.js";
import { Link, go, place, returnToPlace, useRoute } from "./parts/route.js";
import { Login } from "./views/login.js";
import { Overview } from "./views/overview.js";
import { Addresses } from "./views/addresses.js";
import { Address } from "./views/address.js";
import { Connection, Connections } from "./views/connections.js";
import { Sessions } from "./views/sessions.js";
import { Subscriptions } from "./views/subscriptions.js";
import { RetainedTopics } from "./views/retained.js";
import { Queries } from "./views/queries.js";
import { Wills } from "./views/wills.js";
import { Infrastructure } from "./views/infrastructure.js";
import { Network } from "./views/network.js";
import { User, Users } from "./views/users.js";
import { Flavors } from "./views/flavors.js";
import { Plans } from "./views/plans.js";
import { Space, Spaces } from "./views/spaces.js";
import { Events } from "./views/events.js";
import { forgetClient, MqttTest } from "./views/mqtt_client.js";

const PLACES = [
  ["", "Overview", Overview],
  ["addresses", "Addresses", Addresses, Address],
  ["connections", "Connections", Connections, Connection],
  ["sessions", "MQTT sessions", Sessions],
  ["subscriptions", "Subscriptions", Subscriptions],
  ["retained", "Retained topics", RetainedTopics],
  ["wills", "Wills", Wills],
  ["mqtt", "MQTT client", MqttTest],
  ["network", "Network", Network],
  ["infrastructure", "Brokers and routers", Infrastructure],
  ["queries", "Spark queries", Queries],
  ["flavors", "Flavors", Flavors],
  ["users", "Users", Users, User],
  ["spaces", "Address spaces", Spaces, Space],
  ["plans", "Plans", Plans],
  ["events", "Events", Events],
];
/** Places of what belongs to no address space, and of what only the operator has, or an address space. */
const OF_NO_SPACE = ["network", "infrastructure", "queries", "flavors", "spaces"];
const NOT_OF_USERS = ["spaces", "plans"];
/** Whether the caller has no credentials, and the rights of the entry `anonymous`. Without users nobody logs in. */
const isGuest = (me) => me.how === "anonymous" && me.user !== null;
const THEMES = { light: "dark", dark: "light" };

/** For the operator: the address space that the page shows. It is in the address of the page. */
function Choice({ operator }) {
  const { data } = useFetch(operator ? "spaces?limit=1000" : null);
  const names = (data?.items || []).map((it) => it.name);
  if (!names.length && !SPACE) return null;
  if (SPACE && !names.includes(SPACE)) names.unshift(SPACE);
  const show = (event) => {
    const query = event.target.value ? `?space=${encodeURIComponent(event.target.value)}` : "";
    location.assign(`${location.pathname}${query}#/`);
  };
  return html`<label class="space"><span class="hidden">Address space</span>
    <select aria-label="Address space" value=${SPACE || ""} onChange=${show}>
      <option value="">default space</option>
      ${names.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
    </select></label>`;
}

function Frame({ me, leave }) {
  const { parts, query } = useRoute();
  const [name = "", ...rest] = parts,
    of = rest.join("/"); // a name may have slashes
  const operator = me.administrator && !me.space;
  const left = SPACE || me.space ? OF_NO_SPACE : operator ? [] : NOT_OF_USERS;
  const places = PLACES.filter(([key]) => !left.includes(String(key)));
  const [key, title, All, One] = places.find(([it]) => it === name) || [];
  const View = rest.length ? One : All;
  const [open, setOpen] = useState(false);
  useEffect(() => {
    document.title = [...(rest.length ? [of] : []), View ? title : "Unknown page", "EnMasse"].join(" · ");
    setOpen(false);
    document.getElementById("main")?.focus({ preventScroll: true });
  }, [name, of]);
  const theme =
    document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const [, setTheme] = useState(theme);
  const turn = () => {
    document.documentElement.dataset.theme = THEMES[theme];
    localStorage.setItem("theme", THEMES[theme]);
    setTheme(THEMES[theme]);
  };
  return html`
    <a class="skip" href="#main" onClick=${(event) => {
      event.preventDefault();
      document.getElementById("main").focus();
    }}>Skip to content</a>
    <header class="bar">
      <button type="button" class="menu plain" aria-expanded=${open} aria-controls="places"
        onClick=${() => setOpen(!open)}>☰<span class="hidden"> menu</span></button>
      <a class="brand" href="#/"><img src="icon.svg" alt="" width="24" height="24" /><span
        class="text">EnMasse</span></a>
      <span class="spring"></span>
      <${Choice} operator=${operator} />
      <button type="button" class="plain" onClick=${turn} aria-label=${`switch to ${THEMES[theme]} colours`}>
      ${theme === "dark" ? "☀" : "☾"}</button>
      <span class="who">${
        isGuest(me)
          ? "anonymous"
          : me.user
            ? html`<${Link} to=${["users", me.user]}>${me.user + (me.space ? `@${me.space}` : "")}<//>`
            : me.how === "operator"
              ? "operator"
              : "everyone on this machine"
      }</span>
      ${me.how === "session" && html`<button type="button" onClick=${leave}>Log out</button>`}
      ${isGuest(me) && html`<button type="button" onClick=${() => go("login")}>Log in</button>`}
    </header>
    <nav id="places" class=${open ? "open" : ""} aria-label="Places">
      ${places.map(
        ([it, name]) => html`<${Link} key=${it} to=${it ? [it] : []}
        aria-current=${it === key ? "page" : undefined}>${name}<//>`,
      )}
      <a href="api/v1/openapi.json" target="_blank" rel="noopener">API document</a>
    </nav>
    <main id="main" tabindex="-1">${
      View
        ? html`<${View} key=${`${name}/${of}`} me=${me} name=${of} query=${query} operator=${operator && !SPACE} />`
        : html`<${Missing} title="Unknown page" text=${`There is no page ${location.hash}, or it is not for you.`}
          places=${places.map(([it, name]) => [it ? [it] : [], name])} />`
    }</main>`;
}

function App() {
  const [me, setMe] = useState(null),
    [problem, setProblem] = useState(null);
  const ask = async () => {
    try {
      const answer = await get("me", { quiet: true });
      keepToken(answer.csrf);
      setProblem(null);
      setMe(answer);
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) {
        setProblem(null);
        setMe({ how: "none" });
      } else {
        setProblem(error);
        setTimeout(ask, 2000);
      }
    }
  };
  useEffect(() => {
    onLogout((reason) => {
      forgetClient();
      setMe((before) => {
        if (before && before.how !== "none")
          notice(
            reason.startsWith("the issuer")
              ? `Your session has ended: ${reason}.`
              : "Your session has ended. Log in again.",
            true,
          );
        return { how: "none" };
      });
    });
    ask();
  }, []);
  const atLogin = useRoute().parts[0] === "login";
  useEffect(() => {
    if (atLogin && me?.how === "session") location.replace(place());
  }, [atLogin, me]);
  const leave = async () => {
    try {
      await call("POST", "logout", { body: {} });
    } catch {
      /* the session is gone already */
    }
    keepToken(null);
    forgetClient();
    setMe(null);
    await ask();
  };
  let content = html`<p class="empty" role="status">Loading …</p>`;
  if (problem) content = html`<p class="failure" role="alert">${problem.message}</p>`;
  else if (me && (me.how === "none" || (atLogin && isGuest(me)))) content = html`<${Login} onDone=${ask} />`;
  else if (me) content = html`<${Frame} me=${me} leave=${leave} />`;
  return html`${content}<${Notices} />`;
}

// A closed group would hide the field that the browser finds wrong.
document.addEventListener(
  "invalid",
  (event) => {
    const field = /** @type {HTMLElement} */ (event.target);
    for (let it = field.closest("details"); it; it = it.parentElement?.closest("details") ?? null) it.open = true;
  },
  true,
);
const kept = localStorage.getItem("theme");
if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
returnToPlace();
render(html`<${App} />`, document.getElementById("app"));
