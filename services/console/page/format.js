// Numbers, sizes and times for people.
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** Seconds by which MQTT says that a session has no end. */
export const FOR_EVER = 4294967295;

export const count = (value) => (value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en"));

/** A number and its noun: 1 time, 2 times. */
export const counted = (value, noun, nouns = `${noun}s`) => `${count(value)} ${value === 1 ? noun : nouns}`;

/** A rate per second: exact when small, rounded when large; nothing for none. */
export function rate(value) {
  if (!value) return "0";
  if (value < 10) return value.toFixed(1);
  return count(value);
}

export const percent = (value) => (value === null || value === undefined ? "–" : `${Math.round(100 * value)} %`);

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 60) return `${Math.round(value)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min`;
  if (value < 86400) return `${Math.floor(value / 3600)} h ${Math.floor((value % 3600) / 60)} min`;
  return `${Math.floor(value / 86400)} d ${Math.floor((value % 86400) / 3600)} h`;
}

const two = (value) => String(value).padStart(2, "0");

/** The local time in the order of ISO 8601, the same in each language: 2026-11-30 02:05:09. */
export function time(value) {
  if (!value) return "–";
  const at = new Date(value);
  if (Number.isNaN(at.getTime())) return String(value);
  const date = [at.getFullYear(), two(at.getMonth() + 1), two(at.getDate())].join("-");
  return `${date} ${[at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":")}`;
}

export const ago = (value) => (value ? seconds(Math.max(0, (Date.now() - new Date(value).getTime()) / 1000)) : "–");

/** A pattern with * and ? as a regular expression; without either it is looked for anywhere in a name. */
export function matcher(pattern) {
  const text = pattern.trim();
  if (!text) return () => true;
  const escaped = text
    .replace(/[.+^${}()|[\]\\]/g, "\\$&")
    .replace(/\*/g, ".*")
    .replace(/\?/g, ".");
  const expression = new RegExp(/[*?]/.test(text) ? `^${escaped}$` : escaped, "i");
  return (name) => expression.test(name);
}
