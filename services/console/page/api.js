// Requests to /api/v1, and the hooks by which views follow a resource.
import { useEffect, useRef, useState } from "./lib.js";

const BASE = "api/v1/";
/** The address space that the address of the page names; null: that of the user, for the operator the default one. */
export const SPACE = new URLSearchParams(location.search).get("space");
const OF_ALL = ["me", "login", "logout", "spaces"];
let csrf = null;
/** @type {(reason: string) => void} */
let loggedOut = () => {};

/** Problem of the API as an error: `problem.detail` says what to do, `problem.errors` which fields are wrong. */
export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `status ${status}`);
    this.status = status;
    this.problem = problem;
  }
}

/** Call `action`, with the reason, when the server no longer knows this browser's session. */
export function onLogout(action) {
  loggedOut = action;
}

/** Keep the token that requests with the session's cookie have to repeat. */
export function keepToken(token) {
  csrf = token;
}

/** The path of a resource, in the space that the page shows. */
const at = (where) =>
  SPACE && !OF_ALL.includes(where.split(/[/?]/)[0])
    ? `${BASE}spaces/${encodeURIComponent(SPACE)}/${where}`
    : BASE + where;

const withQuery = (where, query) => `${where}${where.includes("?") ? "&" : "?"}${query}`;

export const path = (...parts) => parts.map(encodeURIComponent).join("/");

/**
 * Send a request. Returns {body, etag}; throws ApiError, with status 0 if the server does not answer.
 * @param {string} method
 * @param {string} where
 * @param {{body?: any, etag?: string, quiet?: boolean}} [options]
 */
export async function call(method, where, { body, etag, quiet = false } = {}) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (etag) headers["If-Match"] = `"${etag}"`;
  if (csrf && method !== "GET") headers["X-CSRF-Token"] = csrf;
  let answer;
  try {
    answer = await fetch(at(where), {
      method,
      headers,
      credentials: "same-origin",
      cache: "no-store",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new ApiError(0, { detail: "The console does not answer. Is the suite running?" });
  }
  const text = await answer.text();
  let content = null;
  try {
    content = text ? JSON.parse(text) : null;
  } catch {
    content = { detail: text.slice(0, 300) };
  }
  if (!answer.ok) {
    if (answer.status === 401 && !quiet) loggedOut(content?.detail || "");
    throw new ApiError(answer.status, content || {});
  }
  return { body: content, etag: answer.headers.get("ETag") };
}

export const get = async (where, options) => (await call("GET", where, options)).body;

/** Fetch once, and again when `where` changes or `again` is called: {data, error, again}. `where` null: nothing yet. */
export function useFetch(where) {
  const [state, set] = useState({ data: null, error: null });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (where === null) return undefined;
    let current = true;
    get(where).then(
      (data) => current && set({ data, error: null }),
      (error) => current && set((before) => ({ ...before, error })),
    );
    return () => {
      current = false;
    };
  }, [where, turn]);
  return { ...state, again: () => setTurn((it) => it + 1) };
}

/** Fetch every `ms` milliseconds while the page is in sight: {data, error, lost}. */
export function usePoll(where, { ms = 2000 } = {}) {
  const state = useRef({ data: null, error: null, lost: false });
  const [, draw] = useState(0);
  useEffect(() => {
    let timer = null,
      closed = false;
    const look = async () => {
      if (!document.hidden) {
        const now = state.current;
        try {
          now.data = await get(where);
          now.error = null;
          now.lost = false;
        } catch (error) {
          if (now.data === null) now.error = error;
          else now.lost = true;
        }
        if (closed) return;
        draw((it) => it + 1);
      }
      timer = setTimeout(look, ms);
    };
    look();
    return () => {
      closed = true;
      clearTimeout(timer);
    };
  }, [where]);
  return state.current;
}

const RETRY_MS = [500, 1000, 2000, 4000];

/**
 * Follow a list by server-sent events: a snapshot, then what changed, about once a second.
 * Returns {items: Map of name or id → item, ready, lost, error, version}; `version` grows with each change.
 */
export function useWatch(where, { history = 0, sample = null } = {}) {
  const store = useRef(null);
  const [, draw] = useState(0);
  if (store.current === null || store.current.where !== where) {
    store.current = { where, items: new Map(), history: new Map(), ready: false, lost: false, error: null, version: 0 };
  }
  useEffect(() => {
    if (where === null) return undefined;
    const own = store.current;
    let source = null,
      timer = null,
      failures = 0,
      closed = false;
    const changed = () => {
      own.version += 1;
      draw((it) => it + 1);
    };
    const remember = (key, item) => {
      if (!history || !sample) return;
      const kept = own.history.get(key) || [];
      kept.push(sample(item));
      if (kept.length > history) kept.shift();
      own.history.set(key, kept);
    };
    const open = () => {
      source = new EventSource(at(withQuery(where, "watch=1")));
      const take = ({ items = [], removed = [], more = false }) => {
        // a long list comes in several events
        for (const item of items) {
          own.items.set(keyOf(item), item);
          remember(keyOf(item), item);
        }
        for (const key of removed) {
          own.items.delete(key);
          own.history.delete(key);
        }
        if (more) return;
        own.ready = true;
        own.lost = false;
        own.error = null;
        failures = 0;
        changed();
      };
      source.addEventListener("snapshot", (event) => {
        own.items = new Map();
        take(JSON.parse(event.data));
      });
      source.addEventListener("change", (event) => take(JSON.parse(event.data)));
      source.addEventListener("end", () => {
        source.close();
        again();
      }); // of the login, or rights are others now
      source.onerror = () => {
        source.close();
        own.lost = true;
        changed();
        again();
      };
    };
    const again = async () => {
      if (closed) return;
      try {
        await get(withQuery(where, "limit=1")); // tells why
      } catch (/** @type {any} */ error) {
        if (!error.status) {
          own.lost = true;
          changed();
        } else if (error.status !== 503) {
          own.error = error;
          changed();
          if (error.status !== 429) return;
        }
      }
      timer = setTimeout(() => !closed && open(), RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)]);
    };
    open();
    return () => {
      closed = true;
      clearTimeout(timer);
      if (source) source.close();
    };
  }, [where]);
  return store.current;
}

export const keyOf = (item) => item.id ?? item.name ?? item.topic;
