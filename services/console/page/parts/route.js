// Places in the page: #/addresses/orders?type=queue. They can be kept and shared.
import { html, useEffect, useState } from "../lib.js";

export function parse(hash) {
  const [where, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const parts = where
    .split("/")
    .filter(Boolean)
    .map((part) => {
      try {
        return decodeURIComponent(part);
      } catch {
        return part;
      }
    });
  return { parts, query: new URLSearchParams(query) };
}

export function useRoute() {
  const [route, set] = useState(() => parse(location.hash));
  useEffect(() => {
    const changed = () => set(parse(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

export const place = (...parts) => `#/${parts.map(encodeURIComponent).join("/")}`;
export const go = (...parts) => {
  location.hash = place(...parts);
};

/**
 * State that is kept in the address of the page: [value, set].
 * @param {string} key
 * @param {string} [initial]
 * @returns {[string, (next: string) => void]}
 */
export function useQuery(key, initial = "") {
  const read = () => parse(location.hash).query.get(key) ?? initial;
  const [value, set] = useState(read);
  useEffect(() => {
    const changed = () => set(read());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  const keep = (next) => {
    set(next);
    const { parts, query } = parse(location.hash);
    if (next === initial) query.delete(key);
    else query.set(key, next);
    const text = query.toString();
    history.replaceState(null, "", place(...parts) + (text ? `?${text}` : ""));
  };
  return [value, keep];
}

/** Keep the place while the browser logs in elsewhere. */
export const keepPlace = () => sessionStorage.setItem("place", location.hash);

/** Go to the place that was kept, once. */
export function returnToPlace() {
  const kept = sessionStorage.getItem("place");
  sessionStorage.removeItem("place");
  if (kept && !location.hash) history.replaceState(null, "", kept);
}

export const Link = ({ to, children, ...rest }) => html`<a href=${place(...to)} ...${rest}>${children}</a>`;
