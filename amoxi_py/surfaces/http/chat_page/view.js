/** The page's way to draw: preact with htm's templates, so that no build step is needed. */

import htm from "./vendor/htm.js";
import { h } from "./vendor/preact.js";

export { Component, render } from "./vendor/preact.js";
export { useCallback, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from "./vendor/preact-hooks.js";

export const html = htm.bind(h);
