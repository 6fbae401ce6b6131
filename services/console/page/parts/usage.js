// What an address space uses of the limits of its plan.
import { html } from "../lib.js";
import { bytes, count } from "../format.js";

/** The limits of plans of address spaces, by their names in plans.json; `size`: in bytes. */
export const LIMITS = {
  addresses: {},
  addressesByType: {},
  users: {},
  connections: {},
  connectionsPerUser: {},
  linksPerConnection: {},
  messagesPerSecond: {},
  bytesPerSecond: { size: true },
  maxMessageSize: { size: true },
  storage: { size: true },
  memory: { size: true },
  sessions: {},
  retained: {},
  wills: {},
};
const FEW = 0.8; // of a limit: from there on it is about to be used up

export const amount = (limit, value) => (LIMITS[limit]?.size ? bytes(value) : count(value));

const UNITS = [
  [2 ** 40, "Ti"],
  [2 ** 30, "Gi"],
  [2 ** 20, "Mi"],
  [2 ** 10, "Ki"],
];

/** A number of bytes as plans.json may have it: 1048576 as 1Mi. */
export function written(size) {
  const [unit, name] = UNITS.find(([it]) => size && size % Number(it) === 0) || [1, ""];
  return `${size / Number(unit)}${name}`;
}

/** What is used, and how much at most, of each limit; a part of one is called `addressesByType.queue`. */
export function usageOf({ used, limits }) {
  const known = { ...LIMITS, ...limits, ...used };
  return Object.keys(known).flatMap((limit) => {
    const now = used[limit],
      most = limits[limit];
    if (typeof (most ?? now) !== "object")
      return (most ?? now) === undefined ? [] : [{ name: limit, limit, used: now, most }];
    return Object.keys({ ...most, ...now }).map((part) => ({
      name: `${limit}.${part}`,
      limit,
      used: now?.[part] ?? 0,
      most: most?.[part],
    }));
  });
}

/** The part of a limit that is used; a limit of 0 is used up. */
const part = ({ used, most }) => (most ? used / most : 1);

/** The row that is nearest to its limit; null without limits. */
export const fullest = (space) =>
  usageOf(space)
    .filter((it) => it.used !== undefined && it.most !== undefined)
    .reduce((best, it) => (best === null || part(it) > part(best) ? it : best), /** @type {any} */ (null));

const words = ({ limit, used, most }) => {
  if (most === undefined) return amount(limit, used);
  return used === undefined ? `at most ${amount(limit, most)}` : `${amount(limit, used)} of ${amount(limit, most)}`;
};

/** A limit: its bar where both are known, and the numbers. */
export function Used({ row, named = true }) {
  const share = part(row);
  const bar = row.used !== undefined && row.most !== undefined;
  return html`<div class="used">${named && html`<span class="limit">${row.name}</span>`}
    ${
      bar
        ? html`<span class=${`bar-box ${share >= 1 ? "full" : share >= FEW ? "few" : ""}`} role="meter"
          aria-label=${row.name} aria-valuemin="0" aria-valuenow=${Math.min(row.used, row.most)}
          aria-valuemax=${row.most} aria-valuetext=${words(row)}><span
          style=${{ width: `${Math.min(100, share * 100)}%` }}></span></span>`
        : html`<span class="bar-box none"></span>`
    }<span class="amount">${words(row)}</span></div>`;
}

/** All limits of an address space. */
export const Usage = ({ space }) =>
  html`<div class="usage">${usageOf(space).map((row) => html`<${Used} key=${row.name} row=${row} />`)}</div>`;
