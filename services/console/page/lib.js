// Preact with htm: `html` makes elements, the hooks keep state. There is no build step.
import { Fragment, h, render } from "./vendor/preact.mjs";
import htm from "./vendor/htm.mjs";

export { Fragment, h, render };
export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/hooks.mjs";
export const html = htm.bind(h);
