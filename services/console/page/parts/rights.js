// What the caller may do, so that no button is shown that would be refused. The server decides.

const normal = (name) => name.replaceAll(".", "/");

function matches(pattern, name) {
  if (pattern === "#") return true;
  if (pattern.endsWith("/#")) return name === pattern.slice(0, -2) || name.startsWith(pattern.slice(0, -1));
  if (!pattern.endsWith("*")) return name === pattern;
  const before = pattern.slice(0, -1);
  return name.startsWith(before) && name.length > before.length && !name.slice(before.length).includes("/");
}

/** Whether the caller may do `operation` on an address. */
export function may(me, operation, name) {
  if (me.administrator && me.how !== "session" && me.how !== "bearer") return true; // the operator, or no users
  const rules = me.permissions.filter((it) => it.operations.includes(operation)
    && it.addresses.some((pattern) => matches(normal(pattern.replaceAll("${user}", me.user || "")), normal(name))));
  return rules.some((it) => it.effect === "allow") && !rules.some((it) => it.effect === "deny");
}

/** Whether the caller may manage anything. */
export const manages = (me) => me.administrator || me.permissions.some((it) => it.effect === "allow" && it.operations.includes("manage"));

/** Whether something belongs to the caller. */
export const owns = (me, user) => Boolean(me.user) && me.user === user;
