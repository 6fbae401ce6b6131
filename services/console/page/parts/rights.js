// What the caller may do, so that no button is shown that would be refused. The server decides.

const normal = (name) => name.replaceAll(".", "/");

function matches(pattern, name) {
  if (pattern === "#") return true;
  if (pattern.endsWith("/#")) return name === pattern.slice(0, -2) || name.startsWith(pattern.slice(0, -1));
  if (!pattern.endsWith("*")) return name === pattern;
  const before = pattern.slice(0, -1);
  return name.startsWith(before) && name.length > before.length && !name.slice(before.length).includes("/");
}

const everything = (me) => me.administrator && me.how !== "session" && me.how !== "bearer"; // the operator, or no users

/** The patterns of the caller's permissions that `effect` (allow, deny) an operation. */
const patterns = (me, effect, operation) =>
  me.permissions
    .filter((it) => it.effect === effect && it.operations.includes(operation))
    .flatMap((it) => it.addresses.map((pattern) => normal(pattern.replaceAll("${user}", me.user || ""))));

/** Whether the caller may do `operation` on an address. */
export function may(me, operation, name) {
  const matching = (pattern) => matches(pattern, normal(name));
  return (
    everything(me) ||
    (patterns(me, "allow", operation).some(matching) && !patterns(me, "deny", operation).some(matching))
  );
}

/** Whether some name matches both a filter and a pattern, given as words. */
function meet(filter, pattern) {
  for (let at = 0; ; at += 1) {
    const one = filter[at],
      other = pattern[at];
    if (one === "#" || other === "#") return true;
    if (one === undefined || other === undefined) return one === other;
    if (one !== "+" && other !== "*" && one !== other) return false;
  }
}

/** Whether the caller may do `operation` on everything that a filter of a subscription matches. */
export function covers(me, operation, filter) {
  const plain = normal(filter.startsWith("$share/") ? filter.split("/").slice(2).join("/") : filter),
    words = plain.split("/");
  const wild = words.findIndex((it) => it === "+" || it === "#");
  if (wild < 0 || everything(me)) return may(me, operation, plain);
  if (patterns(me, "deny", operation).some((it) => meet(words, it.split("/")))) return false;
  const head = words
    .slice(0, wild)
    .map((it) => `${it}/`)
    .join("");
  const one = wild === words.length - 1 && words[wild] === "+";
  return patterns(me, "allow", operation).some(
    (it) => it === "#" || (it.endsWith("/#") && head.startsWith(it.slice(0, -1))) || (one && it === `${head}*`),
  );
}

/** Whether the caller may manage anything. */
export const manages = (me) =>
  me.administrator || me.permissions.some((it) => it.effect === "allow" && it.operations.includes("manage"));

/** Whether something belongs to the caller. */
export const owns = (me, user) => Boolean(me.user) && me.user === user;
